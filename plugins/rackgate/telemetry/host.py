"""Facts of a host from its files and tools: modules, driver, limits, shared memory, clock, links.

What cannot be read is None with the reason beside it. Nothing is changed on the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.runner import Command, Ran
from rackgate.telemetry.smi_inventory import parse_inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rackgate.telemetry.runner import Runner

__all__ = ["FACTS", "Fact", "driver_mismatch", "read_host"]

_FILES = (
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/modules",
    "/proc/driver/nvidia/version",
    "/proc/meminfo",
    "/proc/self/limits",
    "/proc/net/dev",
    "/sys/module/nvidia/version",
    "/sys/kernel/security/lockdown",
    "/etc/docker/daemon.json",
    "/etc/cdi/*.yaml",
    "/var/run/cdi/*.yaml",
    "/etc/os-release",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/fw_ver",
)
_SHM = "/dev/shm"  # noqa: S108 - it is looked at, nothing is put there
_COMMANDS = {
    "chronyc": Command(argv=("chronyc", "-c", "tracking"), grant="the package chrony, running"),
    "df_shm": Command(argv=("df", "-B1", "--output=size", _SHM)),
    "services": Command(
        argv=("systemctl", "is-active", "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex")
    ),
    "nvidia_smi": Command(argv=("nvidia-smi", "-q", "-x"), grant="access to /dev/nvidiactl"),
    "nvlink": Command(argv=("nvidia-smi", "nvlink", "--status"), grant="access to /dev/nvidiactl"),
    "library_version": Command(argv=("modinfo", "-F", "version", "nvidia")),
    "signer": Command(argv=("modinfo", "-F", "signer", "nvidia")),
    "fabric_manager": Command(argv=("nv-fabricmanager", "--version")),
    "toolkit": Command(argv=("nvidia-ctk", "--version")),
    "bridges": Command(argv=("lspci", "-vv"), root=True, grant="CAP_SYS_ADMIN for `lspci -vv`"),
    "dkms": Command(argv=("dkms", "status")),
    "secure_boot": Command(argv=("mokutil", "--sb-state")),
    "docker": Command(
        argv=("docker", "info", "--format", "{{json .Runtimes}}"),
        grant="membership of the group docker (which is root's equal), or a rootless daemon",
    ),
}

_PATIENCE = 4
"""`nvidia-smi` wakes every card first where no persistence daemon runs: seconds for each."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One value in words, or why there is none."""

    value: str | None
    reason: Reason | None = None
    detail: str = ""


def driver_mismatch(proc_version: str, said: str) -> tuple[str | None, str | None]:
    """Return (module's version, library's) from `/proc/driver/nvidia/version` and a message."""
    library = re.search(r"NVML library version:\s*(\d[\d.]*\d)", said)
    return _module_version(proc_version), library[1] if library else None


def _module_version(proc_version: str) -> str | None:
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*\d)", proc_version)
    return found[1] if found else None


def read_host(runner: Runner, deadline_s: float = 5.0) -> dict[str, Fact]:
    """Return every fact of a host, each with its value or its reason."""
    files = runner.read(_FILES, deadline_s)
    lost = next((ran for ran in files.values() if ran.reason in (Reason.TIMEOUT, Reason.UNREACHABLE)), None)
    if lost is not None:  # a node that gives no file gives no command either
        return {name: Fact(None, lost.reason, lost.detail) for name in FACTS}
    ran = {
        name: runner.run(command, deadline_s * (_PATIENCE if name == "nvidia_smi" else 1))
        for name, command in _COMMANDS.items()
    }
    return {name: read(files, ran) for name, read in FACTS.items()}


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
        line = " ".join(_COMMANDS[name].argv)
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


def _chrony_offset(text: str) -> str | None:
    columns = text.strip().split(",")
    if len(columns) < 14 or columns[13].strip() == "Not synchronised":
        return None
    return columns[4]


def _service(number: int) -> Callable[[str], str | None]:
    def find(text: str) -> str | None:
        lines = text.split()
        return lines[number] if len(lines) > number else None

    return find


def _ports(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    states = {path: ran.text for path, ran in files.items() if re.search(r"/ports/\d+/state$", path)}
    if not states:
        return Fact(None, Reason.ABSENT, "no InfiniBand port here")
    parts = []
    for path, text in sorted(states.items()):
        device = path.split("/")[4]
        rate = files.get(path.removesuffix("state") + "rate")
        parts.append(f"{device}: {text.split(':')[-1].strip()} {rate.text.strip() if rate else ''}".strip())
    return Fact("; ".join(parts))


def _nic_firmware(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    versions = {ran.text.strip() for path, ran in files.items() if path.endswith("/fw_ver")}
    if not versions:
        return Fact(None, Reason.ABSENT, "no InfiniBand card here")
    return Fact(", ".join(sorted(versions)))


def _cdi(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    specs = [path for path, ran in files.items() if "/cdi/" in path and "nvidia" in ran.text]
    return Fact(", ".join(sorted(specs))) if specs else Fact(None, Reason.ABSENT, "no CDI specification")


def _lockdown(text: str) -> str | None:
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else None


FACTS: Mapping[str, Callable[[Mapping[str, Ran], Mapping[str, Ran]], Fact]] = {
    "kernel": _file("/proc/sys/kernel/osrelease", str.strip),
    "boot_id": _file("/proc/sys/kernel/random/boot_id", str.strip),
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
    "secure_boot": _said("secure_boot", lambda text: text.strip() or None, any_status=True),
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
    "clock_offset_s": _said("chronyc", _chrony_offset),
    "infiniband": _ports,
    "nic_firmware": _nic_firmware,
    "acs_bridges": _said("bridges", _bridges),
}
"""Every fact by name: how it is found in the files and in what the commands said."""


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None
