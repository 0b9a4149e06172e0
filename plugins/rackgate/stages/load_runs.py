"""Loads of a stage: offered look by look until every percentile of theirs is decided, and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from rackgate.engines.context import context_of
from rackgate.engines.metrics_page import MetricsPage, metrics_page
from rackgate.judging.judge import judge
from rackgate.loadgen.engine_counters import (
    fetch_engine_pages,
    histogram_entry,
    prefix_counters_between,
    ttft_histograms_between,
)
from rackgate.loadgen.progress import show_progress
from rackgate.loadgen.remote.relay import NoLoadMachines
from rackgate.loadgen.requests.trace import trace_of
from rackgate.loadgen.results.measurement_quality import measurement_quality
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.running import RunningLoad, check_load, start_load
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.requests.chosen import lateness
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason
from rackgate.nouns.target import Target, reaches
from rackgate.run.run import Run

_END_LIMIT_S = 10.0
_ATTEMPTS = 2
_SHORT_S = 60.0
_NEXT_ATTEMPT_SEED = 7_919
"""Added to the seed of a repeated look, so that no prompt is in the engines' caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """One look: a load of a stage at some endpoints.

    `label` tells runs of one load apart. `requests` counts per endpoint; None is by duration only.
    """

    stage: str
    load: Load
    endpoints: tuple[Endpoint, ...]
    label: str = "all"
    number: int = 0
    requests: int | None = None


def named_loads(run: Run, stage: str, first: str) -> tuple[Load, ...]:
    """Return the loads of a stage: its own first, then each that a row names and will be judged by."""
    asked = [
        check.slo.load
        for check in run.ledger.planned.values()
        if check.slo.stage == stage
        and check.slo.load is not None
        and not (check.declared_absent or check.not_assessed or check.undecidable)
        and run.ledger.gated_by(check) is None
    ]
    return tuple(run.acceptance.loads[name] for name in dict.fromkeys([first, *asked]))


def offer_load(
    run: Run, target: Target, stage: str, load: Load, endpoints: Sequence[Endpoint], *, label: str = "all"
) -> LoadRun:
    """Offer `load` to all endpoints at once, at most as many looks as it plans; never raises for the rack."""
    looks: list[OfferedLoad] = []
    _record_trace_gaps(run, stage, load)
    planned = load.looks or (load.planned_requests,)
    done = 0
    for number, total in enumerate(planned):
        run.say(
            f"{stage}: load {load.name} on {len(endpoints)} endpoint(s), look {number + 1} of at most"
            f" {len(planned)}, {total - done} requests each"
        )
        request = LookRequest(
            stage=stage, load=load, endpoints=tuple(endpoints), label=label, number=number,
            requests=total - done,
        )  # fmt: skip
        looks.append(offer_look(run, target, request))
        done = total
        load_run = LoadRun(load=load.name, label=label, looks=tuple(looks))
        if looks[-1].reason is not None or _decided(run, target, stage, load_run):
            break
    return load_run


def offer_look(
    run: Run,
    target: Target,
    request: LookRequest,
    meanwhile: Callable[[RunningLoad], object] = lambda _running: None,
) -> OfferedLoad:
    """Offer one look, show its progress, record it and return it; `meanwhile` is called when it has begun.

    A look of up to 60 s during which the load generator itself was late says nothing of the rack: it is
    void, which is recorded, and is offered once more, whatever the rack did in it. Ctrl-C ends the load:
    what was measured until then is recorded, then `KeyboardInterrupt` goes on.
    """
    stage, load, number = request.stage, request.load, request.number
    refusal = _context_problem(load, request.endpoints) if number == 0 else ""
    if refusal:
        refused = _not_offered(request, Reason.NOT_CONFIGURED, refusal)
        record_look(run, stage, refused, number=number)
        return refused
    for attempt in range(1, _ATTEMPTS + 1):
        offered = _offer_once(run, target, request, meanwhile, attempt)
        late = lateness((offered,), lag_limit_ms(run))
        short = offered.end_ns - offered.start_ns <= _SHORT_S * 1e9
        if attempt == _ATTEMPTS or not late or not short:
            break
        text = f"{stage}: load {load.name}, look {number + 1} is void and offered again: {late}"
        run.event("void_look", text)
        run.say(text)
    offered = _void_if_cards_lost(run, offered)
    record_look(run, stage, offered, number=number)
    return offered


def follow(run: Run, running: RunningLoad, load: Load, *, until: float = math.inf) -> None:
    """Show the progress of a load until it has ended, or until a monotonic moment in seconds."""
    show_progress(running, load, run.progress.display, extra=run.progress.hottest, until=until)


def lag_limit_ms(run: Run) -> float:
    """Return the schedule lag (P99, ms) above which latencies are the load generator's own."""
    row = run.acceptance.slo("selfcheck.schedule_lag_p99")
    return row.bound if row is not None else 10.0


def record_look(run: Run, stage: str, look: OfferedLoad, *, number: int = 0) -> None:
    """Record one look of a load as soon as it has ended: counters, windows, file of samples."""
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
        **measurement_quality(look.samples),
        clocks=[asdict(clock) for clock in look.clocks],
        prefix_cache={engine: asdict(counted) for engine, counted in look.prefix.items()},
        server_ttft={engine: histogram_entry(one) for engine, one in look.server_ttft.items()},
        origin=str(look.load.origin),
        samples=str(path.relative_to(run.evidence)) if path is not None and path.exists() else None,
        reason=look.reason,
        detail=look.detail,
    )


def _record_trace_gaps(run: Run, stage: str, load: Load) -> None:
    """Record which lines of the load's trace are left out because they are no requests."""
    trace = trace_of(load)
    if trace is not None and trace.left_out_reason:
        text = f"{stage}: load {load.name}: {trace.left_out_reason}"
        run.event("trace_left_out", text)
        run.say(text)


def _context_problem(load: Load, endpoints: Sequence[Endpoint]) -> str:
    """Return why the load is longer than the context of its endpoints; empty if it fits or is unknown."""
    if load.context_tokens is not None:
        return ""
    try:
        check_load(replace(load, context_tokens=context_of(endpoints)))
    except ValueError as error:
        return f"{error} (so says /v1/models): nothing was offered"
    return ""


def _void_if_cards_lost(run: Run, offered: OfferedLoad) -> OfferedLoad:
    """Return the look, without a value where an engine that it reached lost its cards meanwhile."""
    lost = {entity: how for entity, how in run.cards_lost().items() if reaches(offered.engines, entity)}
    if not lost:
        return offered
    text = "; ".join(f"{entity}: {how}" for entity, how in lost.items())
    run.event("cards_lost", text)
    return replace(offered, reason=Reason.DIED, detail=f"it is invalid: an engine lost its cards: {text}")


def _not_offered(request: LookRequest, reason: Reason, detail: str) -> OfferedLoad:
    called = tuple(endpoint.entity for endpoint in request.endpoints)
    return OfferedLoad(load=request.load, label=request.label, engines=called, reason=reason, detail=detail)


def _offer_once(
    run: Run,
    target: Target,
    request: LookRequest,
    meanwhile: Callable[[RunningLoad], object],
    attempt: int,
) -> OfferedLoad:
    pages = _pages(target, request.endpoints)
    before = fetch_engine_pages(pages)
    try:
        begun = _begin(run, target, request, attempt)
    except NoLoadMachines as error:
        return _not_offered(request, Reason.UNREACHABLE, str(error))
    with begun as running:
        try:
            meanwhile(running)
            follow(run, running, request.load)
            offered = running.finish()
        except KeyboardInterrupt:
            record_look(run, request.stage, _ended_early(running, request.load), number=request.number)
            raise
    after = fetch_engine_pages(pages)
    return replace(
        offered,
        prefix=prefix_counters_between(before, after),
        server_ttft=ttft_histograms_between(before, after),
    )


def _begin(run: Run, target: Target, request: LookRequest, attempt: int) -> RunningLoad:
    load = request.load
    name = f"{request.stage}.{load.name}.{request.label}.look{request.number}{'.again' * (attempt - 1)}"
    return start_load(
        load,
        request.endpoints,
        label=request.label,
        samples_path=run.log.sample_file(name),
        seed=run.seed * 1_000_003 + load.seed + (attempt - 1) * _NEXT_ATTEMPT_SEED,
        look=request.number,
        requests=None if load.open else request.requests,
        warmup=request.number == 0,
        instrument_fault=run.instrument_fault,
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
    called = {endpoint.entity for endpoint in endpoints}
    pages = {spec.entity: metrics_page(spec) for spec in target.engines if reaches(called, spec.entity)}
    return {entity: page for entity, page in pages.items() if page is not None}


def _decided(run: Run, target: Target, stage: str, load_run: LoadRun) -> bool:
    seen = Observation(
        stage=stage,
        target=target,
        load_runs=(load_run,),
        excluded=frozenset(run.ledger.quarantined(stage)),
        lag_limit_ms=lag_limit_ms(run),
    )
    waiting = [
        check
        for check in run.ledger.planned.values()
        if check.slo.stage == stage and check.slo.load == load_run.load and run.ledger.gated_by(check) is None
    ]
    return not any(judge(check, run.measure(check, seen)).open for check in waiting)
