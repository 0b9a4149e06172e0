"""Facts of a host from its files and tools: modules, driver, limits, shared memory, clock, links.

What cannot be read is None with the reason beside it. Nothing is changed on the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from rackgate.hosts.concurrently import within
from rackgate.hosts.facts.clock import CLOCK_COMMANDS, clock_fact, clock_to_ours
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.links import (
    imex_domain,
    nic_firmware,
    nvme_drives,
    nvswitches,
    partitions,
    ports,
)
from rackgate.hosts.facts.questions import COMMANDS, DRIVERS_TOOL, FILES
from rackgate.hosts.runner import Ran, Runner
from rackgate.hosts.tools.nvidia_smi_inventory import parse_inventory
from rackgate.nouns.measurement import Reason

_PATIENCE_S = 1.5
"""Seconds per card that `nvidia-smi` needs without a persistence daemon, since it wakes every card."""


def driver_mismatch(proc_version: str, said: str) -> tuple[str | None, str | None]:
    """Return (module's version, library's) from `/proc/driver/nvidia/version` and a message."""
    library = re.search(r"NVML library version:\s*(\d[\d.]*\d)", said)
    return _module_version(proc_version), library[1] if library else None


def _module_version(proc_version: str) -> str | None:
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*\d)", proc_version)
    return found[1] if found else None


def hung_tools(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts that are None because the driver's tool did not end in its time."""
    return {name: facts[name] for name in DRIVERS_TOOL.values() if facts[name].reason is Reason.TIMEOUT}


def read_host(
    runner: Runner, deadline_s: float = 5.0, hung: Mapping[str, Fact] = MappingProxyType({})
) -> dict[str, Fact]:
    """Return every fact of a host, each with its value or its reason.

    Commands run side by side before one deadline; without a persistence daemon `nvidia-smi` has 1.5 s more
    for each card that the driver lists. What hangs is left behind, and its facts are None: so are those that
    `hung` a moment ago in a look as patient as this one.
    """
    files = runner.read(FILES, deadline_s)
    lost = next((ran for ran in files.values() if ran.reason in (Reason.TIMEOUT, Reason.UNREACHABLE)), None)
    if lost is not None:  # a node that gives no file gives no command either
        return {name: Fact(None, lost.reason, lost.detail) for name in FACTS}
    cards = sum(1 for path in files if path.startswith("/proc/driver/nvidia/gpus/"))
    given = {
        name: Ran(reason=hung[fact].reason, detail=hung[fact].detail)
        for name, fact in DRIVERS_TOOL.items()
        if fact in hung
    }
    if cards:
        given["services"] = runner.run(COMMANDS["services"], deadline_s)
    awake = "services" in given and _service(1)(given["services"].text) == "active"
    patience_s = deadline_s + _PATIENCE_S * (0 if awake or "nvidia_smi" in given else cards)
    jobs: dict[str, Callable[[], Any]] = {
        name: partial(runner.run, command, patience_s if name in DRIVERS_TOOL else deadline_s)
        for name, command in COMMANDS.items()
        if name not in given
    }
    answers = within({**jobs, "clock": partial(clock_to_ours, runner, deadline_s)}, patience_s + 0.5)
    late = f"did not end within {patience_s:g} s"
    ours = answers.get("clock") or Fact(None, Reason.TIMEOUT, f"`date` {late}")
    ran = given | {
        name: answers.get(name) or Ran(reason=Reason.TIMEOUT, detail=f"{command.argv[0]} {late}")
        for name, command in COMMANDS.items()
        if name not in given
    }
    return {name: read(files, ran) for name, read in FACTS.items()} | {"clock_to_ours": ours}


def _file(path: str, find: Callable[[str], str | None]) -> Callable[..., Fact]:
    def read(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
        ran = files.get(path)
        if ran is None:
            return Fact(None, Reason.ABSENT, f"{path} is not there")
        if ran.reason is not None:
            return Fact(None, ran.reason, ran.detail)
        value = find(ran.text)
        return Fact(value) if value is not None else Fact(None, Reason.ABSENT, f"{path} does not say")

    return read


def _said(name: str, find: Callable[[str], str | None], *, any_status: bool = False) -> Callable[..., Fact]:
    def read(_: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
        ran = commands[name]
        if ran.reason is not None:
            return Fact(None, ran.reason, ran.detail)
        if ran.status and not any_status:
            return Fact(None, Reason.UNSUPPORTED, ran.detail)
        value = find(ran.text or ran.error)
        line = " ".join(COMMANDS[name].argv)
        return Fact(value) if value is not None else Fact(None, Reason.ABSENT, f"`{line}` does not say")

    return read


def _module(name: str) -> Callable[[str], str]:
    return lambda text: "yes" if re.search(rf"^{name}\s", text, re.MULTILINE) else "no"


def _library(_: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    """Return the library's version: it answers only for a module of its own version, or names both."""
    ran = commands["nvidia_smi"]
    inventory = parse_inventory(ran.text)
    if inventory is not None and inventory.driver:
        return Fact(inventory.driver)
    said = driver_mismatch("", ran.text + ran.error)[1]
    if said:
        return Fact(said)
    return Fact(None, ran.reason or Reason.ABSENT, ran.detail or "nvidia-smi does not say")


def _cuda(_: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    ran = commands["nvidia_smi"]
    inventory = parse_inventory(ran.text)
    if inventory is not None and inventory.cuda:
        return Fact(inventory.cuda)
    return Fact(None, ran.reason or Reason.ABSENT, ran.detail or "nvidia-smi does not say")


def _bridges(text: str) -> str | None:
    """Return how many PCIe bridges send every packet over the root complex (ACS)."""
    if "access denied" in text:
        return None
    return str(len(re.findall(r"^\s*ACSCtl:.*SrcValid\+", text, re.MULTILINE)))


def _meminfo(key: str) -> Callable[[str], str | None]:
    def find(text: str) -> str | None:
        found = re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)
        return found[1] if found else None

    return find


def _memlock(text: str) -> str | None:
    found = re.search(r"^Max locked memory\s+(\S+)", text, re.MULTILINE)
    return found[1] if found else None


def _service(number: int) -> Callable[[str], str | None]:
    def find(text: str) -> str | None:
        lines = text.split()
        return lines[number] if len(lines) > number else None

    return find


def _cdi(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    specs = [path for path, ran in files.items() if "/cdi/" in path and "nvidia" in ran.text]
    return Fact(", ".join(sorted(specs))) if specs else Fact(None, Reason.ABSENT, "no CDI specification")


def _secure_boot(files: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    """Return mokutil's words, else what the firmware's own variable says; a machine without EFI has none."""
    said = _said("secure_boot", lambda text: text.strip() or None, any_status=True)(files, commands)
    if said.value is not None:
        return said
    variable = next((ran for path, ran in files.items() if "/efivars/SecureBoot-" in path and ran.text), None)
    if variable is not None:
        return Fact(f"SecureBoot {'enabled' if variable.text.endswith(chr(1)) else 'disabled'}")
    firmware = [path for path in files if path.startswith("/sys/firmware/")]
    if firmware and not any("/efi/" in path for path in firmware):
        return Fact("this machine has no EFI")
    return said


def _lockdown(text: str) -> str | None:
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else None


FACTS: Mapping[str, Callable[[Mapping[str, Ran], Mapping[str, Ran]], Fact]] = {
    "kernel": _file("/proc/sys/kernel/osrelease", str.strip),
    "os": _file("/etc/os-release", lambda text: _first(r'^PRETTY_NAME="?([^"\n]+)', text)),
    "nvidia_loaded": _file("/proc/modules", _module("nvidia")),
    "nouveau_loaded": _file("/proc/modules", _module("nouveau")),
    "peermem_loaded": _file("/proc/modules", _module("nvidia_peermem")),
    "driver_module": _file("/proc/driver/nvidia/version", _module_version),
    "driver_on_disk": _said("library_version", lambda text: text.strip() or None),
    "driver_library": _library,
    "driver_answer": _said("nvidia_smi", str.strip, any_status=True),
    "module_signer": _said("signer", lambda text: text.strip() or "none"),
    "nvlinks": _said("nvlink", lambda text: text.strip() or None),
    "uvm_loaded": _file("/proc/modules", _module("nvidia_uvm")),
    "cuda": _cuda,
    "dkms": _said("dkms", lambda text: text.strip() or None),
    "secure_boot": _secure_boot,
    "lockdown": _file("/sys/kernel/security/lockdown", _lockdown),
    "fabric_manager": _said("services", _service(0), any_status=True),
    "fabric_manager_version": _said("fabric_manager", lambda text: _first(r":\s*(\d[\d.]+)", text)),
    "persistence_daemon": _said("services", _service(1), any_status=True),
    "imex": _said("services", _service(2), any_status=True),
    "docker_runtimes": _said("docker", lambda text: text.strip() or None),
    "container_toolkit": _said("toolkit", lambda text: _first(r"version\s+(\d[\w.-]*)", text)),
    "docker_config": _file("/etc/docker/daemon.json", lambda text: " ".join(text.split())),
    "cdi": _cdi,
    "memory_kib": _file("/proc/meminfo", _meminfo("MemTotal")),
    "hugepages": _file("/proc/meminfo", _meminfo("HugePages_Total")),
    "memlock_bytes": _file("/proc/self/limits", _memlock),
    "shm_bytes": _said("df_shm", lambda text: _first(r"(\d+)\s*$", text)),
    "clock_offset_s": lambda _, commands: clock_fact({name: commands[name] for name in CLOCK_COMMANDS}),
    "clock_to_ours": lambda _files, _commands: Fact(None, Reason.ABSENT, "it was not asked"),
    "infiniband": ports,
    "nic_firmware": nic_firmware,
    "partitions": partitions,
    "imex_domain": imex_domain,
    "nvswitches": nvswitches,
    "nvme_drives": nvme_drives,
    "cards_listed": _said("cards", lambda text: text.strip() or None),
    "images": _said("images", str.strip),
    "acs_bridges": _said("bridges", _bridges),
}
"""By fact: how it is found in files and in outputs of commands."""


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None
