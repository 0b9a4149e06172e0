"""What is wrong with a driver and its services: versions, a driver that hangs, fabric manager, IMEX."""

from __future__ import annotations

from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.finding import Facts, Found, fail, unknown, unsure, warn
from rackgate.hosts.tools.nvidia_smi import driver_problem
from rackgate.hosts.tools.nvidia_smi_inventory import parse_inventory
from rackgate.nouns.measurement import Reason


def look_at_driver(facts: Facts, demands: HostDemands) -> Found:
    """Return what is wrong with the driver, then with the fabric manager, IMEX and persistence."""
    found: Found = []
    module, library, disk = (facts[name] for name in ("driver_module", "driver_library", "driver_on_disk"))
    answer = facts.fact("driver_answer")
    problem = driver_problem(answer.value or "")
    if module and library and not _same_version(module, library):
        text = f"kernel module {module}, library {library}: nothing will start"
        found.append(fail(text, "Reload the module or reboot."))
    elif answer.reason is Reason.TIMEOUT:
        text = f"the driver does not answer: {answer.detail}"
        found.append(fail(text, "See the kernel's log for XIDs and hung tasks; reboot the node."))
    elif problem:
        text = f"the driver does not answer: {problem}"
        found.append(fail(text, "See the module first, then `dmesg` for NVRM lines."))
    elif module is None or library is None:
        lacking = facts.fact("driver_module" if module is None else "driver_library")
        text = f"version of {'module' if module is None else 'library'}: {lacking.detail}"
        found.append(unknown(text, "Let `nvidia-smi -q -x` run here."))
    elif disk is None:
        text = f"version of the module on disk: {facts.fact('driver_on_disk').detail}"
        found.append(unsure(text, "Let `modinfo nvidia` run here."))
    elif disk != module:
        text = f"module {module} is loaded, {disk} is on disk: the next start changes the driver"
        found.append(warn(text, "Reboot before the acceptance, not after it."))
    return found + _fabric_manager(facts, demands) + _others(facts)


def _fabric_manager(facts: Facts, demands: HostDemands) -> Found:
    state, version, module = (
        facts[name] for name in ("fabric_manager", "fabric_manager_version", "driver_module")
    )
    if state == "failed":
        step = "`journalctl -u nvidia-fabricmanager`; its version must be the driver's."
        return [fail("the fabric manager has failed: NVSwitch cards cannot start CUDA", step)]
    if version and module and version != module:
        text = f"fabric manager {version}, driver {module}: it refuses to start beside another version"
        return [fail(text, "Install the fabric manager of the driver's version.")]
    if state == "active":
        text = f"version of the fabric manager: {facts.fact('fabric_manager_version').detail}"
        step = "Let `nv-fabricmanager --version` run here: it must be the driver's."
        return [] if version else [unknown(text, step)]
    return _not_running(facts, state, needed=_needs_fabric_manager(facts, demands))


def _not_running(facts: Facts, state: str | None, *, needed: bool | None) -> Found:
    """Return what it means that no fabric manager is seen to run; None if it is unknown who needs one."""
    if needed and state is not None:
        text = f"this node needs a fabric manager, which is {state}: NVSwitch cards cannot start CUDA"
        return [fail(text, "`systemctl enable --now nvidia-fabricmanager`.")]
    if needed:
        text = f"the fabric manager, which this node needs: {facts.fact('fabric_manager').detail}"
        return [unknown(text, "Let `systemctl` run here.")]
    if needed is None:
        text = f"no fabric manager runs, and whether NVSwitches are here: {facts.fact('nvswitches').detail}"
        return [unknown(text, "Let `lspci` run here: with NVSwitches the fabric manager must run.")]
    if state and facts["fabric_manager_version"]:
        text = f"the fabric manager is installed and {state}"
        return [warn(text, "`systemctl enable --now nvidia-fabricmanager` on NVSwitch nodes.")]
    return []


def _needs_fabric_manager(facts: Facts, demands: HostDemands) -> bool | None:
    """Return whether the node needs one: where it has NVSwitches or one is pinned; None if unknown."""
    switches = facts["nvswitches"]
    if demands.fabric_manager or (switches or "0") != "0":
        return True
    return None if switches is None and demands.links else False


def _others(facts: Facts) -> Found:
    found: Found = []
    if facts["imex"] == "failed":
        step = "`journalctl -u nvidia-imex`; all nodes of the domain must be in its node list and up."
        found.append(fail("the IMEX service has failed: no memory is shared between nodes", step))
    inventory = parse_inventory(facts["driver_answer"] or "")
    off = [card for card in inventory.cards if card.persistence == "Disabled"] if inventory else []
    if off and facts["persistence_daemon"] != "active":
        text = f"persistence mode is off on {len(off)} cards: each first call pays for their start"
        found.append(warn(text, "`systemctl enable --now nvidia-persistenced`."))
    return found


def _same_version(one: str, other: str) -> bool:
    """Return whether two versions agree as far as both go: NVML names two of the driver's three numbers."""
    first, second = one.split("."), other.split(".")
    length = min(len(first), len(second))
    return first[:length] == second[:length]
