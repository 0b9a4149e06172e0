"""What facts of a host mean: its problems, in the field's order of triage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.telemetry.host_finding import HostFinding, fail, unknown, warn
from rackgate.telemetry.host_triage import STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackgate.telemetry.fact import Fact
    from rackgate.telemetry.host_demands import HostDemands

__all__ = ["host_findings"]

_WARN_OFFSET_S, _FAIL_OFFSET_S = 0.001, 0.010


def host_findings(facts: Mapping[str, Fact], demands: HostDemands) -> tuple[HostFinding, ...]:
    """Return problems of a host, the first to look at first; without cards none of a driver."""
    found = [one for look in STEPS.values() for one in look(facts, demands)] if demands.cards else []
    return (*found, *(replace(one, step="time") for one in _clock(facts["clock_offset_s"])))


def _clock(fact: Fact) -> list[HostFinding]:
    if fact.value is None:
        step = "Install chrony and let it synchronise; times of several nodes are compared."
        return [unknown(f"clock offset: {fact.detail}", step)]
    offset_s = abs(float(fact.value))
    if offset_s <= _WARN_OFFSET_S:
        return []
    text = f"the clock is {offset_s * 1e3:.1f} ms off"
    step = "See with `chronyc sources` whether the servers are reachable and agree."
    return [(fail if offset_s > _FAIL_OFFSET_S else warn)(text, step)]
