"""What is wrong with a host, in the order of triage: kernel module, driver, CUDA, runtime, network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.host import Fact
from rackgate.telemetry.smi import driver_problem
from rackgate.telemetry.smi_inventory import parse_inventory
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["STEPS", "HostFinding"]

_LEAST_SHM_BYTES = 1 << 30
_LEAST_MEMLOCK_BYTES = 1 << 30
_UNREAD = Fact(None, Reason.ABSENT, "it was not asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFinding:
    """One problem. `step` is its place in the triage: module, driver, cuda, runtime, network, time."""

    step: str
    verdict: Verdict
    text: str
    next_step: str


class _Facts:
    """Facts of one host by name, where one that nobody asked for is a fact without a value."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts

    def fact(self, name: str) -> Fact:
        return self._facts.get(name, _UNREAD)

    def __getitem__(self, name: str) -> str | None:
        return self.fact(name).value


Found = list[tuple[Verdict, str, str]]


def _module(facts: _Facts) -> Found:
    found: Found = []
    if facts["nouveau_loaded"] == "yes":
        step = "Blacklist nouveau, rebuild the initramfs, reboot."
        found.append((Verdict.FAIL, "nouveau is loaded: it may own the cards", step))
    secure = "secureboot enabled" in (facts["secure_boot"] or "").lower()
    unsigned, built = facts["module_signer"] == "none", _built(facts)
    if facts["nvidia_loaded"] is None:
        text = f"modules: {facts.fact('nvidia_loaded').detail}"
        found.append((Verdict.UNKNOWN, text, "Let /proc/modules be read."))
    elif facts["nvidia_loaded"] == "no":
        text, step = "the kernel module nvidia is not loaded", "`modprobe nvidia`; then see the kernel's log."
        if secure and unsigned:
            text += ": Secure Boot is on and it has no signature"
            step = "Sign it and enrol the key (`mokutil --import`), or turn Secure Boot off."
        elif built is False:
            text += f": DKMS has no build of it for kernel {facts['kernel']}"
            step = "Install this kernel's headers, then `dkms autoinstall`."
        found.append((Verdict.FAIL, text, step))
    elif secure and unsigned:
        text = "Secure Boot is on and the module on disk has no signature: the next start refuses it"
        found.append((Verdict.WARN, text, "Sign it and enrol the key before the acceptance."))
    elif built is False:
        text = f"DKMS has no build of the module for the running kernel {facts['kernel']}"
        found.append((Verdict.WARN, text, "`dkms autoinstall`, then reboot: a restart must find a module."))
    return found


def _built(facts: _Facts) -> bool | None:
    """Return whether DKMS has installed the driver for this kernel; None if it is not in its hands."""
    lines = [line for line in (facts["dkms"] or "").splitlines() if line.startswith("nvidia")]
    if not lines:
        return None
    return any((facts["kernel"] or "?") in line and "installed" in line for line in lines)


def _driver(facts: _Facts) -> Found:
    found: Found = []
    module, library, disk = (facts[name] for name in ("driver_module", "driver_library", "driver_on_disk"))
    answer = facts.fact("driver_answer")
    problem = driver_problem(answer.value or "")
    if module and library and not _same_version(module, library):
        text = f"kernel module {module}, library {library}: nothing will start"
        found.append((Verdict.FAIL, text, "Reload the module or reboot."))
    elif answer.reason is Reason.TIMEOUT:
        text = f"the driver does not answer: {answer.detail}"
        found.append((Verdict.FAIL, text, "See the kernel's log for XIDs and hung tasks; reboot the node."))
    elif problem:
        text = f"the driver does not answer: {problem}"
        found.append((Verdict.FAIL, text, "See the module first, then `dmesg` for NVRM lines."))
    elif module is None or library is None:
        lacking = facts.fact("driver_module" if module is None else "driver_library")
        text = f"version of {'module' if module is None else 'library'}: {lacking.detail}"
        found.append((Verdict.UNKNOWN, text, "Let `nvidia-smi -q -x` run here."))
    elif disk and disk != module:
        text = f"module {module} is loaded, {disk} is on disk: the next start changes the driver"
        found.append((Verdict.WARN, text, "Reboot before the acceptance, not after it."))
    return found + _services(facts)


def _services(facts: _Facts) -> Found:
    found: Found = []
    state, version, module = (
        facts[name] for name in ("fabric_manager", "fabric_manager_version", "driver_module")
    )
    if state == "failed":
        step = "`journalctl -u nvidia-fabricmanager`; its version must be the driver's."
        found.append((Verdict.FAIL, "the fabric manager has failed: NVSwitch cards cannot start CUDA", step))
    elif version and module and version != module:
        text = f"fabric manager {version}, driver {module}: it refuses to start beside another version"
        found.append((Verdict.FAIL, text, "Install the fabric manager of the driver's version."))
    elif version and state and state != "active":
        text = f"the fabric manager is installed and {state}"
        found.append((Verdict.WARN, text, "`systemctl enable --now nvidia-fabricmanager` on NVSwitch nodes."))
    if facts["imex"] == "failed":
        step = "`journalctl -u nvidia-imex`; all nodes of the domain must be in its node list and up."
        found.append((Verdict.FAIL, "the IMEX service has failed: no memory is shared between nodes", step))
    inventory = parse_inventory(facts["driver_answer"] or "")
    off = [card for card in inventory.cards if card.persistence == "Disabled"] if inventory else []
    if off and facts["persistence_daemon"] != "active":
        text = f"persistence mode is off on {len(off)} cards: each first call pays for their start"
        found.append((Verdict.WARN, text, "`systemctl enable --now nvidia-persistenced`."))
    return found


def _cuda(facts: _Facts) -> Found:
    found: Found = []
    if facts["cuda"] is None:
        text = f"CUDA version of the driver: {facts.fact('cuda').detail}"
        found.append((Verdict.UNKNOWN, text, "Let `nvidia-smi -q -x` run here."))
    if facts["nvidia_loaded"] == "yes" and facts["uvm_loaded"] == "no":
        text = "the module nvidia_uvm is not loaded: no CUDA program can start"
        found.append((Verdict.FAIL, text, "`modprobe nvidia_uvm`, or `nvidia-modprobe -u -c 0`."))
    inventory = parse_inventory(facts["driver_answer"] or "")
    for card in inventory.cards if inventory else ():
        where = f"card {card.index} ({card.pci})"
        if card.compute_mode == "Prohibited":
            text = f"{where} has compute mode Prohibited: no engine may use it"
            found.append((Verdict.FAIL, text, f"`nvidia-smi -i {card.index} -c DEFAULT`."))
        elif card.compute_mode and card.compute_mode.startswith("Exclusive"):
            text = f"{where} has compute mode {card.compute_mode}: one process alone may use it"
            found.append((Verdict.WARN, text, f"`nvidia-smi -i {card.index} -c DEFAULT` unless it is meant."))
    return found


def _runtime(facts: _Facts) -> Found:
    found: Found = []
    docker = facts.fact("docker_runtimes")
    configured = any("nvidia" in (facts[name] or "") for name in ("docker_runtimes", "docker_config", "cdi"))
    if not configured and docker.value is not None:
        text = "Docker knows no runtime nvidia and there is no CDI specification: containers get no card"
        step = (
            "`nvidia-ctk runtime configure --runtime=docker`, or `nvidia-ctk cdi generate`; restart Docker."
        )
        found.append((Verdict.FAIL, text, step))
    elif not configured and docker.reason is not Reason.TOOL_MISSING:
        text = f"runtimes of containers: {docker.detail}"
        found.append((Verdict.UNKNOWN, text, "Let `docker info` run here."))
    shm = facts["shm_bytes"]
    if shm is not None and int(shm) < _LEAST_SHM_BYTES:
        text = f"shared memory has {int(shm) >> 20} MiB: NCCL of several cards needs 1 GiB and more"
        found.append((Verdict.WARN, text, "Raise shm_size, or share the host's IPC."))
    return found


def _network(facts: _Facts) -> Found:
    found: Found = []
    memlock, bridges = facts["memlock_bytes"], facts.fact("acs_bridges")
    if facts["infiniband"] is not None:
        if bridges.value is None:
            text = f"access control of PCIe bridges: {bridges.detail}"
            found.append((Verdict.UNKNOWN, text, "Let `lspci -vv` run with CAP_SYS_ADMIN."))
        elif bridges.value != "0":
            text = f"ACS is on in {bridges.value} PCIe bridges: cards and network cards meet at the CPU only"
            step = "Turn ACS off in the BIOS or with `setpci`, unless cards are passed to virtual machines."
            found.append((Verdict.FAIL, text, step))
        if facts["peermem_loaded"] == "no":
            text = "nvidia_peermem is not loaded: without DMA-BUF there is no GPUDirect RDMA"
            found.append((Verdict.WARN, text, "`modprobe nvidia_peermem`, and at every start."))
    if memlock is not None and memlock.isdigit() and int(memlock) < _LEAST_MEMLOCK_BYTES:
        text = f"at most {int(memlock) >> 10} KiB may be locked: RDMA registration will fail"
        found.append((Verdict.WARN, text, "Set memlock to unlimited for the engine's user."))
    return found


def _same_version(one: str, other: str) -> bool:
    """Return whether two versions agree as far as both go: NVML names two of the driver's three numbers."""
    first, second = one.split("."), other.split(".")
    length = min(len(first), len(second))
    return first[:length] == second[:length]


def _step(name: str, look: Callable[[_Facts], Found]) -> Callable[[Mapping[str, Fact]], list[HostFinding]]:
    def found(facts: Mapping[str, Fact]) -> list[HostFinding]:
        return [
            HostFinding(step=name, verdict=verdict, text=text, next_step=step)
            for verdict, text, step in look(_Facts(facts))
        ]

    return found


STEPS: Mapping[str, Callable[[Mapping[str, Fact]], list[HostFinding]]] = {
    "module": _step("module", _module),
    "driver": _step("driver", _driver),
    "cuda": _step("cuda", _cuda),
    "runtime": _step("runtime", _runtime),
    "network": _step("network", _network),
}
"""The steps of the triage in their order: facts of a host in, its findings out."""
