"""Triage of a host, in order: kernel module, driver, CUDA, container runtime, network, time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.driver_triage import look_at_driver
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.finding import Facts, Found, HostFinding, fail, unknown, unsure, warn
from rackgate.hosts.tools.nvidia_smi_inventory import parse_inventory
from rackgate.nouns.measurement import Reason

_LEAST_SHM_BYTES = 1 << 30
_LEAST_MEMLOCK_BYTES = 1 << 30
_WARN_OFFSET_S, _FAIL_OFFSET_S = 0.001, 0.010


def _module(facts: Facts, _: HostDemands) -> Found:
    found: Found = []
    if facts["nouveau_loaded"] == "yes":
        step = "Blacklist nouveau, rebuild the initramfs, reboot."
        found.append(fail("nouveau is loaded: it may own the cards", step))
    refused, built = _would_be_refused(facts), _built(facts)
    if facts["nvidia_loaded"] is None:
        text = f"modules: {facts.fact('nvidia_loaded').detail}"
        found.append(unknown(text, "Let /proc/modules be read."))
    elif facts["nvidia_loaded"] == "no":
        text, step = "the kernel module nvidia is not loaded", "`modprobe nvidia`; then see the kernel's log."
        if refused:
            text += ": Secure Boot is on and it has no signature"
            step = "Sign it and enrol the key (`mokutil --import`), or turn Secure Boot off."
        elif built is False:
            text += f": DKMS has no build of it for kernel {facts['kernel']}"
            step = "Install this kernel's headers, then `dkms autoinstall`."
        found.append(fail(text, step))
    else:
        found += _next_start(facts, refused=refused, built=built)
    return found


def _next_start(facts: Facts, *, refused: bool | None, built: bool | None) -> Found:
    """Return findings that keep a loaded module from loading at the next boot."""
    if refused:
        text = "Secure Boot is on and the module on disk has no signature: the next start refuses it"
        return [warn(text, "Sign it and enrol the key before the acceptance.")]
    if built is False:
        text = f"DKMS has no build of the module for the running kernel {facts['kernel']}"
        return [warn(text, "`dkms autoinstall`, then reboot: a restart must find a module.")]
    found: Found = []
    if refused is None:
        lacking = next(name for name in ("secure_boot", "module_signer") if facts[name] is None)
        text = f"whether the next start refuses the module (Secure Boot): {facts.fact(lacking).detail}"
        found.append(unsure(text, "Let `mokutil --sb-state` and `modinfo nvidia` run here."))
    dkms = facts.fact("dkms")
    if dkms.value is None and dkms.reason not in (Reason.TOOL_MISSING, Reason.ABSENT):
        found.append(unsure(f"state of DKMS: {dkms.detail}", "Let `dkms status` run here."))
    return found


def _would_be_refused(facts: Facts) -> bool | None:
    """Return whether Secure Boot would refuse the module; None if an unread fact decides it."""
    boot, signer = facts["secure_boot"], facts["module_signer"]
    on = None if boot is None else "secureboot enabled" in boot.lower()
    unsigned = None if signer is None else signer == "none"
    if on is False or unsigned is False:
        return False
    return None if on is None or unsigned is None else True


def _built(facts: Facts) -> bool | None:
    """Return whether DKMS has installed the driver for this kernel; None if DKMS does not manage it."""
    lines = [line for line in (facts["dkms"] or "").splitlines() if line.startswith("nvidia")]
    if not lines:
        return None
    return any((facts["kernel"] or "?") in line and "installed" in line for line in lines)


def _cuda(facts: Facts, _: HostDemands) -> Found:
    found: Found = []
    if facts["cuda"] is None:
        text = f"CUDA version of the driver: {facts.fact('cuda').detail}"
        found.append(unknown(text, "Let `nvidia-smi -q -x` run here."))
    if facts["nvidia_loaded"] == "yes" and facts["uvm_loaded"] == "no":
        text = "the module nvidia_uvm is not loaded: no CUDA program can start"
        found.append(fail(text, "`modprobe nvidia_uvm`, or `nvidia-modprobe -u -c 0`."))
    inventory = parse_inventory(facts["driver_answer"] or "")
    for card in inventory.cards if inventory else ():
        where = f"card {card.index} ({card.pci})"
        if card.compute_mode == "Prohibited":
            text = f"{where} has compute mode Prohibited: no engine may use it"
            found.append(fail(text, f"`nvidia-smi -i {card.index} -c DEFAULT`."))
        elif card.compute_mode and card.compute_mode.startswith("Exclusive"):
            text = f"{where} has compute mode {card.compute_mode}: one process alone may use it"
            found.append(warn(text, f"`nvidia-smi -i {card.index} -c DEFAULT` unless it is meant."))
    return found


def _runtime(facts: Facts, demands: HostDemands) -> Found:
    found: Found = []
    docker = facts.fact("docker_runtimes")
    configured = any("nvidia" in (facts[name] or "") for name in ("docker_runtimes", "docker_config", "cdi"))
    if not configured and docker.value is not None:
        text = "Docker knows no runtime nvidia and there is no CDI specification: containers get no card"
        step = (
            "`nvidia-ctk runtime configure --runtime=docker`, or `nvidia-ctk cdi generate`; restart Docker."
        )
        found.append(fail(text, step))
    elif not configured and (demands.containers or docker.reason is not Reason.TOOL_MISSING):
        text = f"runtimes of containers: {docker.detail}"
        found.append(unknown(text, "Let `docker info` run here."))
    elif configured and demands.containers and facts["container_toolkit"] is None:
        text = f"the container toolkit: {facts.fact('container_toolkit').detail}"
        found.append(unsure(text, "Let `nvidia-ctk --version` run here."))
    shm = facts["shm_bytes"]
    if shm is None:
        found.append(unsure(f"size of /dev/shm: {facts.fact('shm_bytes').detail}", "Let `df` run here."))
    elif int(shm) < _LEAST_SHM_BYTES:
        text = f"shared memory has {int(shm) >> 20} MiB: NCCL of several cards needs 1 GiB and more"
        found.append(warn(text, "Raise shm_size, or share the host's IPC."))
    return found


def _network(facts: Facts, _: HostDemands) -> Found:
    found: Found = []
    memlock, bridges = facts["memlock_bytes"], facts.fact("acs_bridges")
    if facts["infiniband"] is not None:
        if bridges.value is None:
            text = f"access control of PCIe bridges: {bridges.detail}"
            found.append(unknown(text, "Let `lspci -vv` run with CAP_SYS_ADMIN."))
        elif bridges.value != "0":
            text = f"ACS is on in {bridges.value} PCIe bridges: cards and network cards meet at the CPU only"
            step = "Turn ACS off in the BIOS or with `setpci`, unless cards are passed to virtual machines."
            found.append(fail(text, step))
        if facts["peermem_loaded"] == "no":
            text = "nvidia_peermem is not loaded: without DMA-BUF there is no GPUDirect RDMA"
            found.append(warn(text, "`modprobe nvidia_peermem`, and at every start."))
    if memlock is None:
        text = f"memory that may be locked: {facts.fact('memlock_bytes').detail}"
        found.append(unsure(text, "Let /proc/self/limits be read."))
    elif memlock.isdigit() and int(memlock) < _LEAST_MEMLOCK_BYTES:
        text = f"at most {int(memlock) >> 10} KiB may be locked: RDMA registration will fail"
        found.append(warn(text, "Set memlock to unlimited for the engine's user."))
    return found


def _step(
    name: str, look: Callable[[Facts, HostDemands], Found]
) -> Callable[[Mapping[str, Fact], HostDemands], list[HostFinding]]:
    def found(facts: Mapping[str, Fact], demands: HostDemands) -> list[HostFinding]:
        return [replace(one, step=name) for one in look(Facts(facts), demands)]

    return found


STEPS: Mapping[str, Callable[[Mapping[str, Fact], HostDemands], list[HostFinding]]] = {
    "module": _step("module", _module),
    "driver": _step("driver", look_at_driver),
    "cuda": _step("cuda", _cuda),
    "runtime": _step("runtime", _runtime),
    "network": _step("network", _network),
}
"""The triage steps in order; each maps facts and demands to findings."""


def host_findings(facts: Mapping[str, Fact], demands: HostDemands) -> tuple[HostFinding, ...]:
    """Return the findings on a host in triage order; a host without cards has none of a driver."""
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
