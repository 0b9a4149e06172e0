"""Offers a load look by look until every percentile that depends on it is decided, and records it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rackgate.judge import judge
from rackgate.observation import Observation, Offer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackgate.load import Load
    from rackgate.loadgen import Endpoint, OfferedLoad, RunningLoad
    from rackgate.run import Run
    from rackgate.target import Target

__all__ = ["begin_load", "lag_limit_ms", "offer_load", "record_load"]


def offer_load(
    run: Run, target: Target, stage: str, load: Load, endpoints: Sequence[Endpoint], *, label: str
) -> Offer:
    """Offer `load` to all endpoints at once, at most as many looks as it plans; never raises for the rack."""
    looks: list[OfferedLoad] = []
    planned = load.looks or (load.planned_requests,)
    done = 0
    for number, total in enumerate(planned):
        run.on_progress(
            f"{stage}: load {load.name} on {len(endpoints)} endpoint(s), look {number + 1} of at most"
            f" {len(planned)}, {total - done} requests each"
        )
        with begin_load(
            run, stage, load, endpoints, label=label, look=number, requests=total - done
        ) as running:
            looks.append(running.finish())
        done = total
        if looks[-1].reason is not None or _decided(run, target, stage, load, label, tuple(looks)):
            break
    offer = Offer(load=load.name, label=label, looks=tuple(looks))
    record_load(run, stage, offer)
    return offer


def begin_load(
    run: Run,
    stage: str,
    load: Load,
    endpoints: Sequence[Endpoint],
    *,
    label: str,
    look: int = 0,
    requests: int | None = None,
) -> RunningLoad:
    """Start one look and return while it runs."""
    from rackgate.loadgen import start_load

    return start_load(
        load,
        endpoints,
        label=label,
        samples_path=run.sample_file(f"{stage}.{load.name}.{label}.look{look}"),
        seed=run.seed * 1_000_003 + load.seed,
        look=look,
        requests=None if load.open else requests,
        warmup=look == 0,
        handicap=run.instrument_handicap,
    )


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


def record_load(run: Run, stage: str, offer: Offer) -> None:
    """Record each look of an offer: counters, windows, file of samples."""
    for number, look in enumerate(offer.looks):
        path = look.samples_path
        run.record(
            "load",
            stage=stage,
            load=offer.load,
            label=offer.label,
            look=number,
            looks=len(offer.looks),
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
            origin=str(look.load.origin),
            samples=str(path.relative_to(run.evidence)) if path is not None and path.exists() else None,
            reason=look.reason,
            detail=look.detail,
        )
