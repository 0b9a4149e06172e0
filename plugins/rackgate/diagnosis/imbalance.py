"""When a gateway gave one engine far more, or none, of the requests: counted by the second from samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rackgate.diagnosis.co_occurring_events import Happening
from rackgate.loadgen.results.table import SampleTable
from rackgate.metrics.requests.chosen import owners
from rackgate.nouns.target import GATEWAY

if TYPE_CHECKING:
    import numpy.typing as npt

    Counts = npt.NDArray[np.int64]


_SECOND_NS = 1_000_000_000
_LEAST = 20  # requests of one bin: fewer show no share
_MORE, _SIGMAS = 1.5, 3.0  # more than its fair share: by so many times, and by so many standard deviations
_MISSED = 5.0  # an engine that should have had so many and had none was passed over


def imbalance_of(table: SampleTable, engines: Sequence[str]) -> tuple[Happening, ...]:
    """Return the seconds in which a gateway's requests went to one of its engines, or past it.

    Only requests that went through the gateway and whose engine said that it answered count. A second with
    fewer than 20 of them is counted together with those around it. Nothing for a single engine.
    """
    through = table.labels("engine").are((GATEWAY,)) & owners(table).are(engines)
    if len(engines) < 2 or int(through.sum()) < _LEAST:
        return ()
    moments = np.asarray(table.column("scheduled_ns"), dtype=np.int64)[through]
    who = owners(table)[through]
    begin, length_ns = int(moments.min()), max(1, int(np.ptp(moments)))
    width_ns = max(_SECOND_NS, int(_LEAST * length_ns / len(moments)))
    bins = (moments - begin) // width_ns
    number = int(bins.max()) + 1
    totals = np.bincount(bins, minlength=number)
    found: list[Happening] = []
    for engine in engines:
        counts = np.bincount(bins[who.are((engine,))], minlength=number)
        found += _of_engine(engine, counts, totals, 1 / len(engines), begin, width_ns)
    return tuple(found)


def _of_engine(
    engine: str, counts: Counts, totals: Counts, fair: float, begin: int, width_ns: int
) -> list[Happening]:
    expected = fair * totals
    margin = _SIGMAS * np.sqrt(totals * fair * (1 - fair))
    crowded = (totals >= _LEAST) & (counts > _MORE * expected) & (counts > expected + margin)
    passed = (counts == 0) & (expected >= _MISSED)
    share = counts[crowded].sum() / totals[crowded].sum() if crowded.any() else 0.0
    words = {
        f"the gateway gave it {share:.0%} of the requests, fair were {fair:.0%}": crowded,
        "the gateway gave it no request": passed,
    }
    return [
        Happening(
            kind="imbalance",
            entity=engine,
            text=text,
            start_ns=begin + int(place) * width_ns,
            end_ns=begin + (int(place) + 1) * width_ns,
        )
        for text, flags in words.items()
        for place in np.flatnonzero(flags)
    ]
