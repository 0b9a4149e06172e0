"""Triage of a machine without usable cards, in the order device, module, driver, CUDA, containers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rackgate.discovery.machine import CardInventory, TriageStep
from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.triage import STEPS
from rackgate.hosts.runner import Ran, Runner
from rackgate.nouns.verdict import Verdict

_VENDORS = {
    "0x10de": "NVIDIA",
    "0x1002": "AMD",
    "0x1da3": "Habana",
    "0x8086": "Intel",
}
_COMPUTE = re.compile(r"0x(0302|0380|12)")
_DISPLAY = re.compile(r"0x0300")
_PCI = ("/sys/bus/pci/devices/*/vendor", "/sys/bus/pci/devices/*/class")
_OK_BY_RANK = {
    (Verdict.FAIL, Verdict.FAIL): False,
    (Verdict.UNKNOWN, Verdict.FAIL): None,
    (Verdict.WARN, Verdict.WARN): True,
    (Verdict.UNKNOWN, Verdict.WARN): True,
}
"""Whether a step is ok, by (verdict, worst possible verdict) of its findings, the worst first."""

_NAMES = {"module": "kernel module", "driver": "driver", "cuda": "CUDA", "runtime": "container runtime"}


def pci_accelerators(files: Mapping[str, Ran]) -> tuple[str, ...] | None:
    """Return the accelerators of the PCI bus as `NVIDIA at 0000:1b:00.0`; None if the bus cannot be seen.

    A display controller of NVIDIA counts. An onboard display controller of another vendor does not.
    """
    if not any(path.endswith("/vendor") for path in files):
        return None
    found = []
    for path, ran in sorted(files.items()):
        if not path.endswith("/vendor"):
            continue
        vendor = ran.text.strip().lower()
        kind = files.get(path.removesuffix("vendor") + "class")
        text = kind.text.strip().lower() if kind else ""
        display = vendor == "0x10de" and _DISPLAY.match(text)
        if vendor in _VENDORS and (_COMPUTE.match(text) or display):
            found.append(f"{_VENDORS[vendor]} at {path.split('/')[-2]}")
    return tuple(found)


def triage_of(
    runner: Runner, facts: Mapping[str, Fact], inventory: CardInventory, deadline_s: float
) -> tuple[TriageStep, ...]:
    """Return every step with its finding; work begins at the first step that is not ok."""
    on_bus = pci_accelerators(runner.read(_PCI, deadline_s))
    return (_device(on_bus, inventory), *(_step(name, key, facts) for key, name in _NAMES.items()))


def _step(name: str, key: str, facts: Mapping[str, Fact]) -> TriageStep:
    """Return the worst finding of preflight's own triage at a step."""
    findings = STEPS[key](facts, HostDemands(cards=1))
    for rank, ok in _OK_BY_RANK.items():
        worst = next((found for found in findings if (found.verdict, found.at_worst) == rank), None)
        if worst is not None:
            return TriageStep(name=name, ok=ok, text=worst.text, next_step=worst.next_step)
    return TriageStep(name=name, ok=True, text="nothing is wrong")


def _device(on_bus: tuple[str, ...] | None, inventory: CardInventory) -> TriageStep:
    name, listed = "device", ", ".join((on_bus or ())[:8])
    if on_bus and not inventory.cards and not any(device.startswith("NVIDIA") for device in on_bus):
        cure = "Declare their exporter (exporter = ...): only NVIDIA's driver is asked directly."
        return TriageStep(name=name, ok=False, text=f"none of NVIDIA: {listed}", next_step=cure)
    if inventory.cards or on_bus:
        text = f"{len(on_bus)} on the PCI bus: {listed}" if on_bus else "the driver lists cards"
        return TriageStep(name=name, ok=True, text=text)
    if on_bus is None:
        text = "the PCI bus cannot be seen from here (/sys/bus/pci is empty)"
        return TriageStep(name=name, ok=None, text=text, next_step="Look on the host itself: `lspci -nn`.")
    cure = (
        "Is a card seated, powered and enabled in the BIOS; in a virtual machine, passed through?"
        " `lspci -nn` lists what the kernel sees."
    )
    return TriageStep(name=name, ok=False, text="no accelerator on the PCI bus", next_step=cure)
