"""Time to first token of every judged request of a load, read from its file of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackgate.nouns.slo import STAGES
from rackgate_reports.evidence import RunEvidence, Unreadable

_COLUMNS = ("engine", "outcome", "warmup", "scheduled_ns", "sent_ns", "first_token_ns", "served_by")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Judged requests of one load; warm-up and cancelled requests are left out.

    `at_ns` is when a request was due or sent, by `origin`; `ttft_ms` is infinite for a failed request.
    `engine` is an index into `engines`: the engine behind a gateway where the gateway names it. `set_aside`
    counts requests of quarantined engines that were left out. `problem` says why there are none.
    """

    stage: str
    load: str
    origin: str
    at_ns: NDArray[np.int64]
    ttft_ms: NDArray[np.float64]
    engine: NDArray[np.int32]
    engines: tuple[str, ...]
    set_aside: int = 0
    problem: str = ""

    @property
    def failed(self) -> int:
        """Count of failed requests."""
        return int(np.isinf(self.ttft_ms).sum())

    def of_engine(self, name: str) -> NDArray[np.float64]:
        """TTFT of the requests to one engine."""
        own: NDArray[np.float64] = self.ttft_ms[self.engine == self.engines.index(name)]
        return own

    def without(self, names: frozenset[str]) -> Latencies:
        """Return the load without the requests that these engines answered."""
        kept = ~np.isin(self.engine, [code for code, name in enumerate(self.engines) if name in names])
        if kept.all():
            return self
        left, codes = np.unique(self.engine[kept], return_inverse=True)
        return replace(
            self,
            at_ns=self.at_ns[kept],
            ttft_ms=self.ttft_ms[kept],
            engine=codes.astype(np.int32),
            engines=tuple(self.engines[code] for code in left),
            set_aside=self.set_aside + int((~kept).sum()),
        )


def latencies_by_load(run: RunEvidence) -> tuple[Latencies, ...]:
    """Return the latencies of each load; several records of one stage and load are joined."""
    groups: dict[tuple[str, str], list[Latencies]] = {}
    for record in run.of("load"):
        part = _read(run, record)
        groups.setdefault((part.stage, part.load), []).append(part)
    return tuple(map(_joined, groups.values()))


def engines_quarantined_before(run: RunEvidence, stage: str) -> frozenset[str]:
    """Return the engines that earlier stages took out: they are not judged in this stage."""
    place = {name: number for number, name in enumerate(STAGES)}
    return frozenset(
        str(entity)
        for gate in run.of("gate")
        if place.get(str(gate.get("by")).split(".")[0], len(place)) < place.get(stage, -1)
        for entity in gate.get("takes_out") or (gate.get("entity"),)
    )


def _read(run: RunEvidence, load: Mapping[str, Any]) -> Latencies:
    """Return the latencies of one `load` record; of an unreadable file, the problem."""
    empty = Latencies(
        stage=str(load.get("stage") or ""),
        load=str(load.get("load") or load.get("label") or ""),
        origin=str(load.get("origin") or "sent"),
        at_ns=np.empty(0, np.int64),
        ttft_ms=np.empty(0),
        engine=np.empty(0, np.int32),
        engines=(),
    )
    try:
        return _from_table(empty, run.samples(load, _COLUMNS))
    except Unreadable as error:
        return replace(empty, problem=str(error))
    except (KeyError, ValueError, TypeError) as error:
        return replace(empty, problem=f"{load.get('samples')} does not have the columns of samples: {error}")


def _from_table(empty: Latencies, table: Any) -> Latencies:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(table):
        return replace(empty, problem="the file of samples is empty")
    cancelled = pc.equal(table["outcome"].cast(pa.string()), "cancelled")
    judged = pc.invert(pc.or_(table["warmup"].cast(pa.bool_()).fill_null(False), cancelled))
    table = table.filter(judged)
    if not len(table):
        return replace(empty, problem="every request was warm-up or cancelled")
    origin = table["scheduled_ns" if empty.origin == "scheduled" else "sent_ns"]
    start = pc.coalesce(origin, table["scheduled_ns"]).cast(pa.int64())
    called = table["engine"].cast(pa.string()).fill_null("?")
    served = table["served_by"].cast(pa.string()).fill_null("")
    said = pc.and_(pc.equal(called, "gateway"), pc.not_equal(served, ""))
    engine = pc.if_else(said, served, called).combine_chunks().dictionary_encode()
    first = table["first_token_ns"].cast(pa.int64())
    ok = pc.and_(pc.equal(table["outcome"].cast(pa.string()), "ok"), pc.is_valid(first))
    ttft = pc.if_else(ok, pc.divide(pc.subtract(first, start).cast(pa.float64(), safe=False), 1e6), np.inf)
    return replace(
        empty,
        at_ns=np.asarray(start.to_numpy(), np.int64),
        ttft_ms=np.asarray(ttft.to_numpy(), np.float64),
        engine=np.asarray(engine.indices.to_numpy(), np.int32),
        engines=tuple(map(str, engine.dictionary.to_pylist())),
    )


def _joined(parts: Sequence[Latencies]) -> Latencies:
    """Return several parts as one; their problems only if every part has one."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.engines))
    codes = [
        np.array([names.index(name) for name in part.engines] or [0], np.int32)[part.engine] for part in parts
    ]
    problems = [part.problem for part in parts if part.problem]
    return replace(
        parts[0],
        at_ns=np.concatenate([part.at_ns for part in parts]),
        ttft_ms=np.concatenate([part.ttft_ms for part in parts]),
        engine=np.concatenate(codes),
        engines=names,
        problem="; ".join(dict.fromkeys(problems)) if len(problems) == len(parts) else "",
    )


def percentile(ordered: NDArray[np.float64], share: float) -> float | None:
    """Return the nearest-rank percentile of sorted values; None without values.

    It is the smallest value with at least `share` of the values at or below it.
    """
    if not len(ordered):
        return None
    return float(ordered[max(0, int(np.ceil(share * len(ordered) - 1e-9)) - 1)])
