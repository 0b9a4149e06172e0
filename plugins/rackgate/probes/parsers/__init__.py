"""One parser for each tool: values by entity from its output; `BadOutput` for an output of another shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rackgate.probes.parsers import agfhc, dcgm, fio, nccl, nvbandwidth, perftest, rvs, site
from rackgate.probes.probe import ProbedNode, Value

__all__ = ["PARSERS", "Parser"]

Parser = Callable[[str, ProbedNode], list[Value]]

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
