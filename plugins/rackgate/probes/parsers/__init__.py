"""One small reader for each tool: its output in, values by entity out; `BadOutput` for any other shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rackgate.probes.parsers import agfhc, dcgm, fio, nccl, nvbandwidth, perftest, rvs, site
from rackgate.probes.probe import Asked, Value

__all__ = ["PARSERS", "Parser"]

Parser = Callable[[str, Asked], list[Value]]

PARSERS: Mapping[str, Parser] = {
    "agfhc": agfhc.values,
    "dcgm": dcgm.values,
    "fio": fio.values,
    "nccl": nccl.values,
    "nvbandwidth": nvbandwidth.values,
    "perftest": perftest.values,
    "rvs": rvs.values,
    "site": site.values,
}
