"""Preflight's look at hosts: facts and kernel logs -> measurements by (metric, node)."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.telemetry.host_findings import host_findings, outliers
from rackgate.telemetry.host_triage import STEPS
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rackgate.target import Node
    from rackgate.telemetry.host import Fact
    from rackgate.telemetry.host_triage import HostFinding

__all__ = ["HOST_STEPS", "NODE_PROBES", "probe_hosts", "probe_ports"]

Probes = dict[tuple[str, str], Measurement]

HOST_STEPS = {
    "host_module": (
        "findings",
        "What is wrong with the driver's kernel module: nouveau, not loaded, Secure Boot, DKMS.",
    ),
    "host_driver": (
        "findings",
        "What is wrong with the driver: versions of module and library, a driver that hangs, fabric manager.",
    ),
    "host_cuda": ("findings", "What keeps CUDA from starting: no version, nvidia_uvm, compute mode."),
    "host_runtime": ("findings", "What keeps cards out of containers: no runtime nvidia and no CDI."),
    "host_network": ("findings", "What keeps cards and network cards apart: access control of PCIe bridges."),
}
"""Unit and definition of each step of the triage: its findings of class FAIL."""

NODE_PROBES = {
    **HOST_STEPS,
    "host_warnings": ("findings", "Findings of class WARN in any step: complete, but degraded."),
    "host_outliers": ("facts", "Facts in which the node differs from most other nodes."),
    "clock_offset_s": ("s", "Distance of the node's clock from its time server's."),
    "leak_detectors_wet": ("detectors", "Leak detectors that are wet, where all of them are enabled."),
    "infiniband_ports_lost": (
        "ports",
        "InfiniBand ports that the target declares - those that are active at the rate of most.",
    ),
    "power_supplies_bad": ("supplies", "Power supplies that are not enabled and healthy."),
    "xids_since_boot": (
        "events",
        "XIDs, driver faults of class FAIL in the log before the run, by card where its address is declared.",
    ),
    "xids_warned_since_boot": (
        "events",
        "XIDs of class WARN in the kernel log before the run, by card where its address is declared.",
    ),
    "kernel_events_since_boot": (
        "events",
        "Other troubles in the kernel log before the run: killed processes, PCIe, memory, network, nouveau.",
    ),
    "fabric_outside": ("cards", "Cards that are not in the NVLink domain of most."),
}
"""Unit and definition of each probe of a node."""


def probe_hosts(facts: Mapping[str, Mapping[str, Fact]], cards: Mapping[str, int]) -> Probes:
    """Return findings and outliers of each node; `cards` is how many each should have."""
    found: Probes = {}
    different = outliers(facts)
    for node, known in facts.items():
        unread = _unread(known)
        if unread is not None:
            nothing = (*HOST_STEPS, "host_warnings", "host_outliers", "clock_offset_s")
            found |= {(name, node): _not_read(name, node, unread) for name in nothing}
            continue
        findings = host_findings(known, cards=cards.get(node, 0))
        for step in STEPS:
            found[f"host_{step}", node] = _judged_step(step, node, findings)
        warned = [one for one in findings if one.verdict is Verdict.WARN]
        found["host_warnings", node] = _counted("host_warnings", node, len(warned), _words(warned))
        mine = [one for one in different if one.node == node]
        text = "; ".join(f"{one.fact} {one.value}, others {one.others} ({one.share})" for one in mine)
        found["host_outliers", node] = _counted("host_outliers", node, len(mine), text)
        found["clock_offset_s", node] = _offset(node, known["clock_offset_s"])
    return found


def probe_ports(node: Node, fact: Fact) -> Probes:
    """Return how many declared InfiniBand ports are not active, or slower than most of the node's."""
    name, declared = "infiniband_ports_lost", node.expect.infiniband_ports
    if declared is None:
        return {}
    if fact.value is None:
        return {
            (name, node.name): missing(name, node.name, "ports", fact.reason or Reason.ABSENT, fact.detail)
        }
    ports = re.findall(r"(\S+): (\w+) ?(\d*)", fact.value)
    rates = [int(rate) for _, state, rate in ports if state == "ACTIVE" and rate]
    usual = Counter(rates).most_common(1)[0][0] if rates else 0
    good = sum(1 for _, state, rate in ports if state == "ACTIVE" and int(rate or 0) >= usual)
    text = f"{good} of {declared} ports active at {usual} Gbit/s: {fact.value}"
    return {(name, node.name): _counted(name, node.name, max(0, declared - good), text)}


def _judged_step(step: str, node: str, findings: Iterable[HostFinding]) -> Measurement:
    """Return how many findings of a step FAIL; without one, what could not be read leaves it open."""
    mine = [one for one in findings if one.step == step]
    failed = [one for one in mine if one.verdict is Verdict.FAIL]
    unknown = [one for one in mine if one.verdict is Verdict.UNKNOWN]
    name = f"host_{step}"
    if unknown and not failed:
        return missing(name, node, "findings", Reason.ABSENT, _words(unknown))
    return _counted(name, node, len(failed), _words(failed))


def _words(findings: Iterable[HostFinding]) -> str:
    return "; ".join(f"{one.step}: {one.text}. {one.next_step}" for one in findings)


def _unread(known: Mapping[str, Fact]) -> Fact | None:
    """Return the fact that shows that the host was not read at all."""
    kernel = known.get("kernel")
    return kernel if kernel is not None and kernel.value is None else None


def _not_read(name: str, node: str, fact: Fact) -> Measurement:
    return missing(name, node, NODE_PROBES[name][0], fact.reason or Reason.ABSENT, fact.detail)


def _offset(node: str, fact: Fact) -> Measurement:
    name = "clock_offset_s"
    if fact.value is None:
        return missing(name, node, "s", fact.reason or Reason.ABSENT, fact.detail)
    value = abs(float(fact.value))
    return Measurement(metric=name, entity=node, value=value, unit="s", count=1, source="probe")


def _counted(name: str, node: str, number: int, detail: str) -> Measurement:
    return Measurement(
        metric=name,
        entity=node,
        value=float(number),
        unit=NODE_PROBES[name][0],
        count=1,
        detail=detail,
        source="probe",
    )
