"""Why no accelerator can be used here, in the field's order: device, module, driver, CUDA, containers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rackgate.discovery.machine import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackgate.discovery.machine import FoundCards
    from rackgate.telemetry.host import Fact
    from rackgate.telemetry.runner import Ran, Runner

__all__ = ["pci_accelerators", "triage_of"]

_VENDORS = {
    "0x10de": "NVIDIA",
    "0x1002": "AMD",
    "0x1da3": "Habana",
    "0x8086": "Intel",
}
_COMPUTE = re.compile(r"0x(0302|0380|12)")
_DISPLAY = re.compile(r"0x0300")
_PCI = ("/sys/bus/pci/devices/*/vendor", "/sys/bus/pci/devices/*/class")
_CUDA = ("/usr/local/cuda*/version.json", "/usr/local/cuda/version.txt")
_CUDA_LIBRARY = re.compile(r"libcudart\.so\.(\d+[\d.]*)")


def pci_accelerators(files: Mapping[str, Ran]) -> tuple[str, ...]:
    """Return the accelerators of the PCI bus as `NVIDIA at 0000:1b:00.0`; NVIDIA's display class counts too.

    An onboard display controller is none, and neither is an Intel GPU that only drives a screen.
    """
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
    runner: Runner, facts: Mapping[str, Fact], found: FoundCards, deadline_s: float
) -> tuple[Step, ...]:
    """Return every step with what was seen there; the first that is not ok is where to begin."""
    files = runner.read((*_PCI, *_CUDA), deadline_s)
    return (
        _device(files, found),
        _module(facts),
        _driver(facts, found),
        _cuda(files, facts, found),
        _containers(facts),
    )


def _device(files: Mapping[str, Ran], found: FoundCards) -> Step:
    name = "device"
    seen = pci_accelerators(files)
    if found.cards or seen:
        text = f"{len(seen)} on the PCI bus: {', '.join(seen[:8])}" if seen else "the driver lists cards"
        return Step(name=name, ok=True, text=text)
    if not any(path.endswith("/vendor") for path in files):
        text = "the PCI bus cannot be seen from here (/sys/bus/pci is empty)"
        return Step(name=name, ok=None, text=text, next_step="Look on the host itself: `lspci -nn`.")
    text = "no accelerator on the PCI bus"
    cure = (
        "Is a card seated, powered and enabled in the BIOS; in a virtual machine, passed through?"
        " `lspci -nn` lists what the kernel sees."
    )
    return Step(name=name, ok=False, text=text, next_step=cure)


def _module(facts: Mapping[str, Fact]) -> Step:
    name, nvidia, nouveau = "kernel module", facts["nvidia_loaded"], facts["nouveau_loaded"]
    if nouveau.value == "yes":
        cure = "Blacklist nouveau, rebuild the initramfs, reboot."
        return Step(name=name, ok=False, text="nouveau is loaded: it may own the cards", next_step=cure)
    if nvidia.value == "yes":
        return Step(name=name, ok=True, text="nvidia is loaded")
    if nvidia.value is None:
        cure = "Let /proc/modules be read."
        return Step(name=name, ok=None, text=nvidia.detail, next_step=cure)
    cure = "`modprobe nvidia`; if it is refused: DKMS state, kernel headers, Secure Boot."
    return Step(name=name, ok=False, text="the kernel module nvidia is not loaded", next_step=cure)


def _driver(facts: Mapping[str, Fact], found: FoundCards) -> Step:
    name = "driver"
    module, library = facts["driver_module"].value, facts["driver_library"].value
    if found.cards:
        return Step(name=name, ok=True, text=f"{found.source} lists {len(found.cards)} cards")
    if module and library and module != library:
        text, cure = f"kernel module {module}, library {library}", "Reload the module or reboot."
    elif not module and not library:
        text = "no driver is installed"
        cure = "Install the vendor's driver for this kernel, then `nvidia-smi`."
    else:
        text, cure = found.why or "it lists no card", "`nvidia-smi` and the kernel log name the cause."
    return Step(name=name, ok=False, text=text, next_step=cure)


def _cuda(files: Mapping[str, Ran], facts: Mapping[str, Fact], found: FoundCards) -> Step:
    name = "CUDA"
    if found.cuda:
        return Step(name=name, ok=True, text=f"the driver offers {found.cuda}")
    toolkit = next((ran.text for path, ran in files.items() if path.startswith("/usr/local/cuda")), "")
    version = re.search(r"\d+\.\d+(\.\d+)?", toolkit) or _CUDA_LIBRARY.search(
        facts["driver_library"].detail or ""
    )
    if version:
        text = f"toolkit {version[0]} is installed, and no driver offers CUDA"
    else:
        text = "no driver offers CUDA, and no toolkit is in /usr/local"
    cure = "It comes with the driver; engines in containers bring their own toolkit."
    return Step(name=name, ok=False, text=text, next_step=cure)


def _containers(facts: Mapping[str, Fact]) -> Step:
    name, runtimes, cdi = "container runtime", facts["docker_runtimes"], facts["cdi"]
    if cdi.value or "nvidia" in (runtimes.value or ""):
        return Step(name=name, ok=True, text="cards can be given to containers")
    if runtimes.value is None:
        cure = "Install a container daemon and the container toolkit, if engines shall run in containers."
        return Step(name=name, ok=None, text=f"no daemon to ask: {runtimes.detail}", next_step=cure)
    cure = "Install the NVIDIA container toolkit, then `nvidia-ctk runtime configure`."
    text = "a daemon is there and can give no card to a container"
    return Step(name=name, ok=False, text=text, next_step=cure)
