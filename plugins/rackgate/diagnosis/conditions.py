"""What the requests and the telemetry of an unmet speed row show: queueing, a cold engine, a full card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.labels import Labels
from rackgate.loadgen.results.table import SampleTable
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import chosen_samples, owners
from rackgate.nouns.measurement import Symptom
from rackgate.nouns.sample import Outcome
from rackgate.nouns.slo import Slo
from rackgate.telemetry.table import TelemetryTable

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]


_LATENCIES = frozenset({"ttft_ms", "tpot_ms", "e2e_ms", "survivor_ttft_ms"})
_SPEED = _LATENCIES | {
    *("jitter_ratio", "tpot_drift", "tpot_ratio", "scaling_efficiency"),
    *("output_token_throughput", "request_throughput", "goodput", "goodput_per_s", "offered_share"),
}
"""Rows of these metrics are slow or fast; of others nothing is looked for."""

_LEAST = 20  # fewer requests show no pattern
_MOSTLY = 0.5
_HEAD, _IN_HEAD = 1.5, 0.9  # of the slow requests so many lie among the first that are 1.5 times as many
_APART = 1.5  # high is at least so many times low
_UNSTEADY, _UNSTEADY_FLAT = 2.0, 3.0  # P99 / P50: where it grows with concurrency, and where that stays
_BUSY_PCT, _IDLE_PCT = 85.0, 20.0
_IDLE_BIT = 0x1


@dataclass(frozen=True, slots=True)
class _Requests:
    """Ok requests in the order of their starts; `slow` are those that the row is not met by."""

    start_ns: Floats
    first_ns: Floats
    done_ns: Floats
    ttft_ms: Floats
    e2e_ms: Floats
    slow: Flags
    owner: Labels

    @property
    def in_flight(self) -> Floats:
        """How many ran when each started, itself among them."""
        begun = np.searchsorted(np.sort(self.start_ns), self.start_ns, side="right")
        ended = np.searchsorted(np.sort(self.done_ns), self.start_ns, side="right")
        return np.asarray(begun - ended, dtype=float)


def conditions_of(slo: Slo, entity: str, observation: Observation) -> tuple[Symptom, ...]:
    """Return the conditions that hold for an unmet row, with the figures that show them.

    Each is computed, none is proof of a cause: `queueing`, `not_warmed_up`, `batching`, `latency_unstable`,
    `first_token_slow`, `busy_and_slow`, `idle_under_load`; none in a row that is not of speed.
    """
    table = chosen_samples(observation, slo, entity).table if slo.metric in _SPEED else None
    if table is None:
        return ()
    seen = _requests(table, slo)
    found: dict[str, str] = {}
    if len(seen.start_ns) >= _LEAST:
        waited = _waited(seen, observation.telemetry)
        found["queueing"] = "" if waited is None else waited
        found["not_warmed_up"] = _cold(seen)
        found |= _with_concurrency(seen, quiet=waited == "" and not found["not_warmed_up"])
        found["first_token_slow"] = _first_token(seen) if slo.metric in ("ttft_ms", "e2e_ms") else ""
    found |= _cards(seen, entity, observation)
    return tuple(Symptom(key=f"condition:{name}", seen=words) for name, words in found.items() if words)


def _requests(table: SampleTable, slo: Slo) -> _Requests:
    ok = table.where(table.labels("outcome").are((Outcome.OK,)))
    ok = ok.where(np.argsort(np.asarray(ok.column("scheduled_ns")), kind="stable"))
    columns = {name: np.asarray(ok.column(name), dtype=float) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    judged = columns.get(slo.metric.removeprefix("survivor_"))
    if judged is not None:
        slow = judged > slo.bound
    elif slo.metric == "jitter_ratio":
        slow = columns["ttft_ms"] > 2 * np.nanmedian(columns["ttft_ms"])
    else:
        slow = np.ones(len(ok), dtype=bool)
    return _Requests(
        start_ns=np.asarray(ok.column("scheduled_ns"), dtype=float),
        first_ns=np.asarray(ok.column("first_token_ns"), dtype=float),
        done_ns=np.asarray(ok.column("done_ns"), dtype=float),
        ttft_ms=columns["ttft_ms"],
        e2e_ms=columns["e2e_ms"],
        slow=slow,
        owner=owners(ok),
    )


def _waited(seen: _Requests, telemetry: TelemetryTable | None) -> str | None:
    """Say how long slow requests waited in their engines' queues; None if no queue was read.

    By Little's law: mean number that waited / rate of arrivals, both over the time to the slow first tokens.
    An engine takes new requests in between two steps, so that a short queue alone is no sign.
    """
    found = {engine: _queue_of(seen, engine, telemetry) for engine in seen.owner[seen.slow].counts()}
    known = {engine: queue for engine, queue in found.items() if queue is not None}
    if not known:
        return None
    queued = {engine: queue for engine, queue in known.items() if queue.share >= _MOSTLY}
    if sum(queue.slow for queue in queued.values()) < _MOSTLY * sum(queue.slow for queue in known.values()):
        return ""
    engine, worst = max(queued.items(), key=lambda one: one[1].slow)
    return (
        f"{worst.waiting:.1f} requests waited at {engine} on average: {worst.wait_ms:.0f} ms of the"
        f" {worst.ttft_ms:.0f} ms to a slow first token"
    )


@dataclass(frozen=True, slots=True)
class _Queue:
    """An engine's queue in the time of its slow requests: their number, and what of their TTFT it makes."""

    slow: int
    waiting: float
    wait_ms: float
    ttft_ms: float

    @property
    def share(self) -> float:
        return self.wait_ms / self.ttft_ms if self.ttft_ms > 0 else 0.0


def _queue_of(seen: _Requests, engine: str, telemetry: TelemetryTable | None) -> _Queue | None:
    if telemetry is None:
        return None
    series = telemetry.series(engine, "requests_waiting")
    there = ~np.isnan(series.values)
    own = seen.owner.are((engine,)) & ~np.isnan(seen.first_ns)
    slow = own & seen.slow
    begin, end = np.sort(seen.start_ns[slow]), np.sort(seen.first_ns[slow])

    def under_way(moments: Floats) -> Flags:
        begun = np.searchsorted(begin, moments, side="right")
        return np.asarray(begun > np.searchsorted(end, moments, side="left"))

    moments = series.t_ns[there].astype(float)
    inside = under_way(moments)
    period_ns = np.ptp(moments) if len(moments) > 1 else 0.0
    length_s = float(inside.mean()) * period_ns / 1e9 if period_ns else 0.0
    arrivals = int(under_way(seen.start_ns[own]).sum())
    if length_s <= 0 or not arrivals:
        return None
    waiting = float(series.values[there][inside].mean())
    wait_ms = waiting * length_s / arrivals * 1e3
    return _Queue(int(slow.sum()), waiting, wait_ms, float(np.median(seen.ttft_ms[slow])))


def _cold(seen: _Requests) -> str:
    slow, number = int(seen.slow.sum()), len(seen.slow)
    head = int(np.ceil(_HEAD * slow))
    inside = int(seen.slow[:head].sum())
    if slow < 3 or head > _MOSTLY * number or inside < _IN_HEAD * slow:
        return ""
    early, late = np.median(seen.ttft_ms[:head][seen.slow[:head]]), np.median(seen.ttft_ms[head:])
    return (
        f"{inside} of {slow} slow requests are among the first {head} of {number}"
        f" (TTFT {early:.0f} ms there, {late:.0f} ms after them)"
    )


def _with_concurrency(seen: _Requests, *, quiet: bool) -> dict[str, str]:
    """Say how TTFT and its spread go with the requests in flight; `quiet` says that no queue explains it."""
    flight = seen.in_flight
    low, high = np.percentile(flight, (25, 75))
    few, many = seen.ttft_ms[flight <= low], seen.ttft_ms[flight >= high]
    if high < _APART * low or min(len(few), len(many)) < _LEAST / 2:
        spread, number = _spread(seen.ttft_ms), float(np.median(flight))
        steady = number < 2 or spread < _UNSTEADY_FLAT or not 0 < seen.slow.mean() < _MOSTLY
        words = f"TTFT P99 / P50 = {spread:.1f} at {number:.0f} in flight"
        return {"latency_unstable": "" if steady else words}
    where = f"at up to {low:.0f} in flight, {{}} from {high:.0f} on"
    grown, middle = _spread(many), np.median(many)
    unstable = grown >= _UNSTEADY and grown >= _APART * _spread(few)
    shared = quiet and middle >= _APART * np.median(few)
    return {
        "latency_unstable": f"TTFT P99 / P50 = {_spread(few):.1f} {where.format(f'{grown:.1f}')}" * unstable,
        "batching": f"TTFT P50 {np.median(few):.0f} ms {where.format(f'{middle:.0f} ms')}" * bool(shared),
    }


def _spread(values: Floats) -> float:
    middle = np.nanmedian(values)
    return float(np.nanpercentile(values, 99) / middle) if middle > 0 else 1.0


def _first_token(seen: _Requests) -> str:
    shares = seen.ttft_ms[seen.slow] / seen.e2e_ms[seen.slow]
    share = float(np.nanmedian(shares)) if len(shares) else 0.0
    return f"the first token takes {share:.0%} of a slow answer's time" if share > _MOSTLY else ""


def _cards(seen: _Requests, entity: str, observation: Observation) -> dict[str, str]:
    """Say which of the entity's cards idle under the load, or that all of them are busy all the time.

    A card is looked at while its own engine has requests: in a closed load a fast one is done before others.
    """
    telemetry = observation.telemetry
    if telemetry is None or not len(seen.start_ns):
        return {}
    busy: dict[str, float | None] = {}
    idle: list[str] = []
    for engine in observation.target.engines:
        if engine.entity not in observation.members(entity):
            continue
        mine = seen.owner.are((engine.entity,))
        mine = mine if mine.any() else np.ones(len(seen.start_ns), dtype=bool)
        window = (int(seen.start_ns[mine].min()), int(np.nanmax(seen.done_ns[mine])))
        for card in engine.cards:
            busy[card] = _usual(telemetry, card, "utilisation_pct", window)
            idle += [card] if _idles(telemetry, card, busy[card], window) else []
    if idle:
        said = f", utilisation {busy[idle[0]]:.0f} %" if busy[idle[0]] is not None else ""
        return {"idle_under_load": f"{', '.join(idle[:4])} idle while requests ran{said}"}
    known = [value for value in busy.values() if value is not None]
    if not known or len(known) < len(busy) or min(known) < _BUSY_PCT:
        return {}
    return {"busy_and_slow": f"utilisation of {', '.join(list(busy)[:4])}: {min(known):.0f} % or more"}


def _idles(telemetry: TelemetryTable, card: str, busy: float | None, window: tuple[int, int]) -> bool:
    series = telemetry.series(card, "clock_event_reasons")
    inside = (series.t_ns >= window[0]) & (series.t_ns <= window[1]) & ~np.isnan(series.values)
    bits = series.values[inside].astype(np.int64) & _IDLE_BIT
    by_bit = len(bits) > 0 and float((bits != 0).mean()) > _MOSTLY
    return by_bit or (busy is not None and busy < _IDLE_PCT)


def _usual(telemetry: TelemetryTable, card: str, field: str, window: tuple[int, int]) -> float | None:
    series = telemetry.series(card, field)
    inside = (series.t_ns >= window[0]) & (series.t_ns <= window[1]) & ~np.isnan(series.values)
    return float(np.median(series.values[inside])) if inside.any() else None
