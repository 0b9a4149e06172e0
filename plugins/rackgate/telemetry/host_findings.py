"""What facts of hosts mean: problems of one in the field's order of triage, and who differs from the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.telemetry.host_triage import STEPS, HostFinding
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate.telemetry.host import Fact

__all__ = ["COMPARED", "Outlier", "host_findings", "outliers"]

COMPARED = (
    *("kernel", "os", "driver_module", "driver_library", "nvidia_loaded", "nouveau_loaded"),
    *("peermem_loaded", "dkms", "secure_boot", "fabric_manager", "persistence_daemon", "imex"),
    *("docker_runtimes", "docker_config", "cdi", "hugepages", "memlock_bytes", "shm_bytes"),
    *("cuda", "fabric_manager_version", "container_toolkit", "module_signer", "acs_bridges"),
    "nic_firmware",
)
"""Facts that should be the same on all nodes."""

_WARN_OFFSET_S, _FAIL_OFFSET_S = 0.001, 0.010


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A node that differs from most others in one fact."""

    node: str
    fact: str
    value: str
    others: str
    share: str


def host_findings(facts: Mapping[str, Fact], *, cards: int) -> tuple[HostFinding, ...]:
    """Return problems of a host that should have `cards` cards, the first to look at first."""
    found = [one for look in STEPS.values() for one in look(facts)] if cards else []
    return (*found, *_clock(facts))


def _clock(facts: Mapping[str, Fact]) -> list[HostFinding]:
    fact = facts["clock_offset_s"]
    if fact.value is None:
        step = "Install chrony and let it synchronise; times of several nodes are compared."
        return [_finding("time", Verdict.UNKNOWN, f"clock offset: {fact.detail}", step)]
    offset_s = abs(float(fact.value))
    if offset_s <= _WARN_OFFSET_S:
        return []
    verdict = Verdict.FAIL if offset_s > _FAIL_OFFSET_S else Verdict.WARN
    text = f"the clock is {offset_s * 1e3:.1f} ms off"
    return [
        _finding(
            "time", verdict, text, "See with `chronyc sources` whether the servers are reachable and agree."
        )
    ]


def _finding(step: str, verdict: Verdict, text: str, next_step: str) -> HostFinding:
    return HostFinding(step=step, verdict=verdict, text=text, next_step=next_step)


def outliers(
    nodes: Mapping[str, Mapping[str, Fact]], compared: Sequence[str] = COMPARED
) -> tuple[Outlier, ...]:
    """Return each node whose fact is not that of the most nodes; without a majority, all but the first.

    A fact that could not be read is not compared: it is unknown, not different.
    """
    found = []
    for name in compared:
        values = {node: facts[name].value for node, facts in nodes.items() if name in facts}
        known = {node: value for node, value in values.items() if value is not None}
        if len(set(known.values())) < 2:
            continue
        usual, count = Counter(known.values()).most_common(1)[0]
        found += [
            Outlier(node=node, fact=name, value=value, others=usual, share=f"{count} of {len(known)}")
            for node, value in known.items()
            if value != usual
        ]
    return tuple(found)
