"""Conditions of the load behind an unmet speed row: queueing, a cold engine, a busy or an idle card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.sample_table import SampleTable
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
"""Only rows of these metrics have conditions."""

_LEAST_REQUESTS = 20  # fewer show no pattern
_MOSTLY = 0.5
_HEAD, _IN_HEAD = 1.5, 0.9
"""Cold: of N slow requests, at least 90 % are among the first 1.5 N requests."""

_APART = 1.5  # high concurrency is at least so many times the low one
_UNSTABLE, _UNSTABLE_FLAT = 2.0, 3.0  # P99 / P50 of TTFT: with growing, and with constant concurrency
_BUSY_PCT, _IDLE_PCT = 85.0, 20.0
_IDLE_BIT = 0x1


@dataclass(frozen=True, slots=True)
class _Requests:
    """Successful requests in the order of their starts; `slow` marks those over the row's bound."""

    start_ns: Floats
    first_ns: Floats
    done_ns: Floats
    ttft_ms: Floats
    e2e_ms: Floats
    slow: Flags
    owner: DictionaryColumn

    @property
    def in_flight(self) -> Floats:
        """The requests in flight when each one started, itself included."""
        begun = np.searchsorted(np.sort(self.start_ns), self.start_ns, side="right")
        ended = np.searchsorted(np.sort(self.done_ns), self.start_ns, side="right")
        return np.asarray(begun - ended, dtype=float)


def conditions_of(slo: Slo, entity: str, observation: Observation) -> tuple[Symptom, ...]:
    """Return the conditions of an unmet row, each with its figures. A condition is no proof of a cause.

    They are `queueing`, `not_warmed_up`, `batching`, `latency_unstable`,
    `first_token_slow`, `busy_and_slow` and `idle_under_load`; a row that is not of speed has none.
    """
    table = chosen_samples(observation, slo, entity).table if slo.metric in _SPEED else None
    if table is None:
        return ()
    requests = _requests(table, slo)
    found: dict[str, str] = {}
    if len(requests.start_ns) >= _LEAST_REQUESTS:
        queueing = _queueing(requests, observation.telemetry)
        found["queueing"] = queueing or ""
        found["not_warmed_up"] = _not_warmed_up(requests)
        quiet = queueing == "" and not found["not_warmed_up"]
        found |= _with_concurrency(requests, quiet=quiet)
        found["first_token_slow"] = _first_token_slow(requests) if slo.metric in ("ttft_ms", "e2e_ms") else ""
    found |= _cards(requests, entity, observation)
    return tuple(Symptom(key=f"condition:{name}", seen=text) for name, text in found.items() if text)


def _requests(table: SampleTable, slo: Slo) -> _Requests:
    ok = table.where(table.labels("outcome").isin((Outcome.OK,)))
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


def _queueing(requests: _Requests, telemetry: TelemetryTable | None) -> str | None:
    """Return how long slow requests waited in their engines' queues; None if no queue was read.

    The wait is Little's law, mean queue length / arrival rate, until the first tokens of slow requests.
    An engine admits requests between two steps, so a short queue alone is no sign.
    """
    found = {
        engine: _queue_of(requests, engine, telemetry) for engine in requests.owner[requests.slow].counts()
    }
    known = {engine: queue for engine, queue in found.items() if queue is not None}
    if not known:
        return None
    queued = {engine: queue for engine, queue in known.items() if queue.share >= _MOSTLY}
    if sum(queue.slow for queue in queued.values()) < _MOSTLY * sum(queue.slow for queue in known.values()):
        return ""
    engine, worst = max(queued.items(), key=lambda item: item[1].slow)
    return (
        f"{worst.waiting:.1f} requests waited at {engine} on average: {worst.wait_ms:.0f} ms of the"
        f" {worst.ttft_ms:.0f} ms to a slow first token"
    )


@dataclass(frozen=True, slots=True)
class _Queue:
    """An engine's queue while it had slow requests: their number, queue length, wait, median TTFT."""

    slow: int
    waiting: float
    wait_ms: float
    ttft_ms: float

    @property
    def share(self) -> float:
        return self.wait_ms / self.ttft_ms if self.ttft_ms > 0 else 0.0


def _queue_of(requests: _Requests, engine: str, telemetry: TelemetryTable | None) -> _Queue | None:
    if telemetry is None:
        return None
    series = telemetry.series(engine, "requests_waiting")
    there = ~np.isnan(series.values)
    own = requests.owner.isin((engine,)) & ~np.isnan(requests.first_ns)
    slow = own & requests.slow
    begin, end = np.sort(requests.start_ns[slow]), np.sort(requests.first_ns[slow])

    def under_way(moments: Floats) -> Flags:
        begun = np.searchsorted(begin, moments, side="right")
        return np.asarray(begun > np.searchsorted(end, moments, side="left"))

    moments = series.t_ns[there].astype(float)
    inside = under_way(moments)
    period_ns = np.ptp(moments) if len(moments) > 1 else 0.0
    length_s = float(inside.mean()) * period_ns / 1e9 if period_ns else 0.0
    arrivals = int(under_way(requests.start_ns[own]).sum())
    if length_s <= 0 or not arrivals:
        return None
    waiting = float(series.values[there][inside].mean())
    wait_ms = waiting * length_s / arrivals * 1e3
    return _Queue(int(slow.sum()), waiting, wait_ms, float(np.median(requests.ttft_ms[slow])))


def _not_warmed_up(requests: _Requests) -> str:
    slow, number = int(requests.slow.sum()), len(requests.slow)
    head = int(np.ceil(_HEAD * slow))
    inside = int(requests.slow[:head].sum())
    if slow < 3 or head > _MOSTLY * number or inside < _IN_HEAD * slow:
        return ""
    early, late = np.median(requests.ttft_ms[:head][requests.slow[:head]]), np.median(requests.ttft_ms[head:])
    return (
        f"{inside} of {slow} slow requests are among the first {head} of {number}"
        f" (TTFT {early:.0f} ms there, {late:.0f} ms after them)"
    )


def _with_concurrency(requests: _Requests, *, quiet: bool) -> dict[str, str]:
    """Return how TTFT and its spread grow with the requests in flight; `quiet`: no queue explains it."""
    flight = requests.in_flight
    low, high = np.percentile(flight, (25, 75))
    few, many = requests.ttft_ms[flight <= low], requests.ttft_ms[flight >= high]
    if high < _APART * low or min(len(few), len(many)) < _LEAST_REQUESTS / 2:
        spread, number = _spread(requests.ttft_ms), float(np.median(flight))
        steady = number < 2 or spread < _UNSTABLE_FLAT or not 0 < requests.slow.mean() < _MOSTLY
        words = f"TTFT P99 / P50 = {spread:.1f} at {number:.0f} in flight"
        return {"latency_unstable": "" if steady else words}
    where = f"at up to {low:.0f} in flight, {{}} from {high:.0f} on"
    grown, middle = _spread(many), np.median(many)
    unstable = grown >= _UNSTABLE and grown >= _APART * _spread(few)
    shared = quiet and middle >= _APART * np.median(few)
    return {
        "latency_unstable": f"TTFT P99 / P50 = {_spread(few):.1f} {where.format(f'{grown:.1f}')}" * unstable,
        "batching": f"TTFT P50 {np.median(few):.0f} ms {where.format(f'{middle:.0f} ms')}" * bool(shared),
    }


def _spread(values: Floats) -> float:
    middle = np.nanmedian(values)
    return float(np.nanpercentile(values, 99) / middle) if middle > 0 else 1.0


def _first_token_slow(requests: _Requests) -> str:
    shares = requests.ttft_ms[requests.slow] / requests.e2e_ms[requests.slow]
    share = float(np.nanmedian(shares)) if len(shares) else 0.0
    return f"the first token takes {share:.0%} of a slow answer's time" if share > _MOSTLY else ""


def _cards(requests: _Requests, entity: str, observation: Observation) -> dict[str, str]:
    """Return which cards of the entity were idle under the load, or that all of them were busy.

    A card counts while its own engine has requests: in a closed load a fast engine ends before the others.
    """
    telemetry = observation.telemetry
    if telemetry is None or not len(requests.start_ns):
        return {}
    busy: dict[str, float | None] = {}
    idle: list[str] = []
    for engine in observation.target.engines:
        if engine.entity not in observation.members(entity):
            continue
        mine = requests.owner.isin((engine.entity,))
        mine = mine if mine.any() else np.ones(len(requests.start_ns), dtype=bool)
        window = (int(requests.start_ns[mine].min()), int(np.nanmax(requests.done_ns[mine])))
        for card in engine.cards:
            utilisation = _values_in(telemetry, card, "utilisation_pct", window)
            busy[card] = float(np.median(utilisation)) if len(utilisation) else None
            idle += [card] if _is_idle(telemetry, card, busy[card], window) else []
    if idle:
        said = f", utilisation {busy[idle[0]]:.0f} %" if busy[idle[0]] is not None else ""
        return {"idle_under_load": f"{', '.join(idle[:4])} idle while requests ran{said}"}
    known = [value for value in busy.values() if value is not None]
    if not known or len(known) < len(busy) or min(known) < _BUSY_PCT:
        return {}
    return {"busy_and_slow": f"utilisation of {', '.join(list(busy)[:4])}: {min(known):.0f} % or more"}


def _is_idle(telemetry: TelemetryTable, card: str, busy: float | None, window: tuple[int, int]) -> bool:
    bits = _values_in(telemetry, card, "clock_event_reasons", window).astype(np.int64) & _IDLE_BIT
    by_bit = len(bits) > 0 and float((bits != 0).mean()) > _MOSTLY
    return by_bit or (busy is not None and busy < _IDLE_PCT)


def _values_in(telemetry: TelemetryTable, card: str, field: str, window: tuple[int, int]) -> Floats:
    series = telemetry.series(card, field)
    inside = (series.t_ns >= window[0]) & (series.t_ns <= window[1]) & ~np.isnan(series.values)
    return series.values[inside]
