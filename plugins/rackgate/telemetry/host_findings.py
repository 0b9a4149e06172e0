"""What facts of hosts mean: problems of one in the field's order of triage, and who differs from the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate.telemetry.host import Fact

__all__ = ["COMPARED", "HostFinding", "Outlier", "host_findings", "outliers"]

COMPARED = (
    *("kernel", "os", "driver_module", "driver_library", "nvidia_loaded", "nouveau_loaded"),
    *("peermem_loaded", "dkms", "secure_boot", "fabric_manager", "persistence_daemon", "imex"),
    *("docker_runtimes", "docker_config", "cdi", "hugepages", "memlock_bytes", "shm_bytes"),
)
"""Facts that should be the same on all nodes."""

_WARN_OFFSET_S, _FAIL_OFFSET_S = 0.001, 0.010
_LEAST_SHM_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFinding:
    """One problem. `step` is its place in the triage: module, driver, cuda, runtime, network, time, ..."""

    step: str
    verdict: Verdict
    text: str
    next_step: str


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
    found: list[HostFinding] = []
    if cards:
        found += _module_and_driver(facts)
    found += _limits(facts)
    found += _clock(facts)
    return tuple(found)


def _module_and_driver(facts: Mapping[str, Fact]) -> list[HostFinding]:
    found = []
    if facts["nouveau_loaded"].value == "yes":
        text = "nouveau is loaded: it may own the cards"
        found.append(
            _finding("module", Verdict.FAIL, text, "Blacklist nouveau, rebuild the initramfs, reboot.")
        )
    if facts["nvidia_loaded"].value == "no":
        step = "`modprobe nvidia`; if it is refused: DKMS state, kernel headers, Secure Boot."
        found.append(_finding("module", Verdict.FAIL, "the kernel module nvidia is not loaded", step))
    module, disk, library = (
        facts[name].value for name in ("driver_module", "driver_on_disk", "driver_library")
    )
    if module and library and module != library:
        text = f"kernel module {module}, library {library}: nothing will start"
        found.append(_finding("driver", Verdict.FAIL, text, "Reload the module or reboot."))
    elif module and disk and module != disk:
        text = f"module {module} is loaded, {disk} is on disk: the next start changes the driver"
        found.append(_finding("driver", Verdict.WARN, text, "Reboot before the acceptance, not after it."))
    if facts["nvidia_loaded"].value is None:
        fact = facts["nvidia_loaded"]
        found.append(
            _finding("module", Verdict.UNKNOWN, f"modules: {fact.detail}", "Let /proc/modules be read.")
        )
    return found


def _limits(facts: Mapping[str, Fact]) -> list[HostFinding]:
    shm, memlock = facts["shm_bytes"].value, facts["memlock_bytes"].value
    found = []
    if shm is not None and int(shm) < _LEAST_SHM_BYTES:
        text = f"shared memory has {int(shm) >> 20} MiB: NCCL of several cards needs 1 GiB and more"
        found.append(_finding("container", Verdict.WARN, text, "Raise shm_size, or share the host's IPC."))
    if memlock is not None and memlock.isdigit() and int(memlock) < 1 << 30:
        text = f"at most {int(memlock) >> 10} KiB may be locked: RDMA registration will fail"
        found.append(
            _finding("network", Verdict.WARN, text, "Set memlock to unlimited for the engine's user.")
        )
    return found


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
