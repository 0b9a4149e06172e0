"""Offers a load look by look until every percentile that depends on it is decided, and records it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from rackgate.engines.metrics_page import MetricsPage
from rackgate.judging.judge import judge
from rackgate.loadgen import Endpoint, OfferedLoad, RunningLoad
from rackgate.metrics.observation import Observation, Offer
from rackgate.metrics.requests.chosen import lateness
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.nouns.target import Target, reaches
from rackgate.run.run import Run
from rackgate.stages.planned_loads import tell_left_out, too_long

_END_LIMIT_S = 10.0
_ATTEMPTS = 2
_SHORT_S = 60.0
_NEXT_ATTEMPT = 7_919
"""What the seed grows by, so that no prompt is one that the engines have in their caches."""


def offer_load(
    run: Run, target: Target, stage: str, load: Load, endpoints: Sequence[Endpoint], *, label: str
) -> Offer:
    """Offer `load` to all endpoints at once, at most as many looks as it plans; never raises for the rack."""
    looks: list[OfferedLoad] = []
    tell_left_out(run, stage, load)
    planned = load.looks or (load.planned_requests,)
    done = 0
    for number, total in enumerate(planned):
        run.on_progress(
            f"{stage}: load {load.name} on {len(endpoints)} endpoint(s), look {number + 1} of at most"
            f" {len(planned)}, {total - done} requests each"
        )
        looks.append(
            offer_look(run, target, stage, load, endpoints, label=label, look=number, requests=total - done)
        )
        done = total
        if looks[-1].reason is not None or _decided(run, target, stage, load, label, tuple(looks)):
            break
    return Offer(load=load.name, label=label, looks=tuple(looks))


def offer_look(
    run: Run,
    target: Target,
    stage: str,
    load: Load,
    endpoints: Sequence[Endpoint],
    *,
    label: str,
    look: int = 0,
    requests: int | None = None,
    meanwhile: Callable[[RunningLoad], object] = lambda _running: None,
) -> OfferedLoad:
    """Offer one look, tell how it goes, record it and return it; `meanwhile` is called when it has begun.

    A look of up to 60 s during which the load generator itself was late says nothing of the rack: it is
    void, which is recorded, and is offered once more, whatever the rack did in it. Ctrl-C ends the load:
    what was measured until then is recorded, then `KeyboardInterrupt` goes on.
    """
    refusal = too_long(load, endpoints) if look == 0 else ""
    if refusal:
        refused = _unoffered(load, label, endpoints, Reason.NOT_CONFIGURED, refusal)
        record_look(run, stage, refused, number=look)
        return refused
    for attempt in range(1, _ATTEMPTS + 1):
        offered = _offer_once(
            run, target, stage, load, endpoints, label, look, requests, meanwhile, attempt=attempt
        )
        late = lateness((offered,), lag_limit_ms(run))
        short = offered.end_ns - offered.start_ns <= _SHORT_S * 1e9
        if attempt == _ATTEMPTS or not late or not short:
            break
        text = f"{stage}: load {load.name}, look {look + 1} is void and offered again: {late}"
        run.event("void_look", text)
        run.on_progress(text)
    offered = _with_cards(run, offered)
    record_look(run, stage, offered, number=look)
    return offered


def _with_cards(run: Run, offered: OfferedLoad) -> OfferedLoad:
    """Return a look as it is, or without value where an engine that it reached lost its cards meanwhile."""
    lost = run.cards_lost()
    reached = {one: what for one, what in lost.items() if reaches(offered.engines, one)}
    if not reached:
        return offered
    text = "; ".join(f"{entity}: {what}" for entity, what in reached.items())
    run.event("cards_lost", text)
    return replace(offered, reason=Reason.DIED, detail=f"it is invalid: an engine lost its cards: {text}")


def _unoffered(
    load: Load, label: str, endpoints: Sequence[Endpoint], reason: Reason, detail: str
) -> OfferedLoad:
    from rackgate.loadgen import OfferedLoad

    called = tuple(endpoint.entity for endpoint in endpoints)
    return OfferedLoad(load=load, label=label, engines=called, reason=reason, detail=detail)


def _offer_once(
    run: Run,
    target: Target,
    stage: str,
    load: Load,
    endpoints: Sequence[Endpoint],
    label: str,
    look: int,
    requests: int | None,
    meanwhile: Callable[[RunningLoad], object],
    *,
    attempt: int,
) -> OfferedLoad:
    from rackgate.loadgen.engine_counters.prefix_cache import counters_meanwhile, read_pages
    from rackgate.loadgen.engine_counters.server_ttft import histograms_meanwhile
    from rackgate.loadgen.remote.machines import NoLoadMachines

    pages = _pages(target, endpoints)
    before = read_pages(pages)
    try:
        begun = _begin(
            run, target, stage, load, endpoints, label=label, look=look, requests=requests, attempt=attempt
        )
    except NoLoadMachines as error:
        return _unoffered(load, label, endpoints, Reason.UNREACHABLE, str(error))
    with begun as running:
        try:
            meanwhile(running)
            follow(run, running, load)
            offered = running.finish()
        except KeyboardInterrupt:
            record_look(run, stage, _ended_early(running, load), number=look)
            raise
    after = read_pages(pages)
    return replace(
        offered,
        prefix=counters_meanwhile(before, after),
        server_ttft=histograms_meanwhile(before, after),
    )


def follow(run: Run, running: RunningLoad, load: Load, *, until: float = math.inf) -> None:
    """Tell how a load goes until it has ended, or until a monotonic moment in seconds."""
    from rackgate.loadgen.progress import watch

    watch(running, load, run.teller, beside=run.hottest, until=until)


def _begin(
    run: Run,
    target: Target,
    stage: str,
    load: Load,
    endpoints: Sequence[Endpoint],
    *,
    label: str,
    look: int,
    requests: int | None,
    attempt: int,
) -> RunningLoad:
    from rackgate.loadgen import start_load

    return start_load(
        load,
        endpoints,
        label=label,
        samples_path=run.sample_file(f"{stage}.{load.name}.{label}.look{look}{'.again' * (attempt - 1)}"),
        seed=run.seed * 1_000_003 + load.seed + (attempt - 1) * _NEXT_ATTEMPT,
        look=look,
        requests=None if load.open else requests,
        warmup=look == 0,
        handicap=run.instrument_handicap,
        machines=target.load_machines,
    )


def _ended_early(running: RunningLoad, load: Load) -> OfferedLoad:
    running.cancel()
    offered = running.finish(load.limits.connect_s + _END_LIMIT_S)
    ended = sum(offered.counters.outcomes.values())
    text = f"interrupted: {ended} measured requests had ended"
    return offered if offered.reason else replace(offered, reason=Reason.DIED, detail=text)


def _pages(target: Target, endpoints: Sequence[Endpoint]) -> dict[str, MetricsPage]:
    """Return the metrics pages of the engines that a load reaches: behind a gateway all of them."""
    from rackgate.engines.metrics_page import metrics_page

    called = {endpoint.entity for endpoint in endpoints}
    pages = {spec.entity: metrics_page(spec) for spec in target.engines if reaches(called, spec.entity)}
    return {entity: page for entity, page in pages.items() if page is not None}


def _decided(
    run: Run, target: Target, stage: str, load: Load, label: str, looks: tuple[OfferedLoad, ...]
) -> bool:
    seen = Observation(
        stage=stage,
        target=target,
        offers=(Offer(load=load.name, label=label, looks=looks),),
        excluded=frozenset(run.ledger.quarantined(stage)),
        lag_limit_ms=lag_limit_ms(run),
    )
    waiting = [
        check
        for check in run.ledger.planned.values()
        if check.slo.stage == stage and check.slo.load == load.name and run.ledger.gated_by(check) is None
    ]
    return not any(judge(check, run.measure(check, seen)).open for check in waiting)


def lag_limit_ms(run: Run) -> float:
    """Return the schedule lag (P99, ms) above which latencies are the load generator's own."""
    row = run.acceptance.slo("selfcheck.schedule_lag_p99")
    return row.bound if row is not None else 10.0


def record_look(run: Run, stage: str, look: OfferedLoad, *, number: int = 0) -> None:
    """Record one look of a load as soon as it has ended: counters, windows, file of samples."""
    from rackgate.loadgen.engine_counters.server_ttft import histogram_entry
    from rackgate.loadgen.results.account import account_of

    path = look.samples_path
    run.offered_s[stage] = run.offered_s.get(stage, 0.0) + max(0, look.end_ns - look.start_ns) / 1e9
    run.record(
        "load",
        stage=stage,
        load=look.load.name,
        label=look.label,
        look=number,
        looks=max(1, len(look.load.looks)),
        engines=list(look.engines),
        start_ns=look.start_ns,
        end_ns=look.end_ns,
        steady_start_ns=look.steady_start_ns,
        steady_end_ns=look.steady_end_ns,
        counters=asdict(look.counters),
        reconciles=look.counters.reconciles,
        peak_in_flight=look.peak_in_flight,
        cpu_s=look.cpu_s,
        loop_lag_p99_ms=look.loop_lag_p99_ms,
        workers=[asdict(cost) for cost in look.workers],
        workload=look.load.workload,
        **account_of(look.samples),
        clocks=[asdict(clock) for clock in look.clocks],
        prefix_cache={engine: asdict(counted) for engine, counted in look.prefix.items()},
        server_ttft={engine: histogram_entry(one) for engine, one in look.server_ttft.items()},
        origin=str(look.load.origin),
        samples=str(path.relative_to(run.evidence)) if path is not None and path.exists() else None,
        reason=look.reason,
        detail=look.detail,
    )
