"""Parser of kernel logs: XID, SXid, lost cards, wrong drivers, bus and memory errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from rackgate.hosts.pci import canonical_pci
from rackgate.telemetry.kernel.log_line import LogLine, boot_to_monotonic_ns, parse_lines
from rackgate.telemetry.kernel.message_joining import unfolded

_PCI = r"(?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)"
_XID = re.compile(
    r"NVRM: Xid \(" + _PCI + r"(?:\s+GPU-I:(\w+))?(?:\s+GPU-CI:(\w+))?\): (\d+),?\s*(.*)$", re.DOTALL
)
_OWNER = re.compile(r"^(?:pid='?(<unknown>|\d+)'?)?,?\s*(?:name=(<unknown>|[^,]*),\s*)?(.*)$", re.DOTALL)
_NVLINK = re.compile(
    r"^([A-Z][A-Z0-9_/]+)\s+(Fatal|Nonfatal)\s+XC\d+\s+i\d+\s+Link\s+(-?\d+)\s+\(((?:0x[0-9a-fA-F]+\s*)+)",
)
_RECOVERY = re.compile(r"(?:changed from 0x\w+ \(\w[\w ]*\) to |changed to )0x(\w+)(?: \(([\w ]+)\))?")
_SM_UNIT = re.compile(r"\(GPC (\d+), TPC (\d+)")
_SXID = re.compile(r"(nvidia-nvswitch\d+): SXid \(" + _PCI + r"\): (\d+),\s*(.*)$")
_DATA = re.compile(r"^Data \{([^}]*)\}")
_FALLEN = re.compile(r"NVRM: GPU (?:at )?" + _PCI + r":? ?.*fallen off the bus", re.IGNORECASE)
_FALLEN_AT_LOAD = re.compile(r"The NVIDIA GPU " + _PCI + r".*fallen off the bus", re.DOTALL)
_MISMATCH = re.compile(
    r"the client(?: '([^']+)' \(pid (\d+)\))? has the version ([\d.]+\d),? but this kernel module has the"
    r" version ([\d.]+\d)"
)
_PROBE = re.compile(r"NVRM: The NVIDIA probe routine (failed|was not called) for (\d+) device")
_CONFLICT = re.compile(r"such as:?\s*(.*?)\s*was loaded")

_PLAIN = (
    ("aer", re.compile(r"AER: .*(?:error|Error)|PCIe Bus Error: severity=", re.IGNORECASE)),
    (
        "edac",
        re.compile(r"\bEDAC \S+: .*(?:CE|UE)\b|Hardware Error.*(?:Uncorrected|uncorrected)|mce: \[Hardware"),
    ),
    ("oom", re.compile(r"Out of memory: Kill|oom-kill:|invoked oom-killer|Memory cgroup out of memory")),
    ("mlx5", re.compile(r"mlx5_core .*(?:error|fail|Link down|health|timeout|fatal)", re.IGNORECASE)),
    ("nouveau", re.compile(r"\bnouveau\b.*(?:bound|NVIDIA|DRM|initialized)", re.IGNORECASE)),
    ("no_adapter", re.compile(r"NVRM: No NVIDIA (?:graphics adapter|GPU)")),
    (
        "nvrm",
        re.compile(
            r"NVRM: (?!Xid|loading|GPU at|The NVIDIA|This can|API mismatch).*(?:fail|error|assert)",
            re.IGNORECASE,
        ),
    ),
)
_ADDRESS = re.compile(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """One event, of one line or of several.

    `kind` is `xid`, `sxid`, `fallen_off_bus`, `api_mismatch`, `driver_not_bound`, `probe_failed`,
    `no_adapter`, `aer`, `edac`, `oom`, `mlx5`, `nouveau`, `nvrm` or `reboot`. `code` is the XID or SXid;
    `equivalent_xid` what an event without one amounts to. `details` holds what else the line says.
    """

    kind: str
    line: LogLine
    text: str
    pci: str | None = None
    code: int | None = None
    equivalent_xid: int | None = None
    pid: int | None = None
    process: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        """Whether nothing says that someone else than the kernel wrote it."""
        return self.line.from_kernel is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Events by where they lie to a window; `untrusted` are not the kernel's own, `unplaced` have no time."""

    inside: tuple[KernelEvent, ...]
    earlier: tuple[KernelEvent, ...]
    later: tuple[KernelEvent, ...]
    unplaced: tuple[KernelEvent, ...]
    untrusted: tuple[KernelEvent, ...]


def parse_log(
    raw: str | Iterable[str], *, now: datetime | None = None, utc_offset_s: float = 0.0
) -> tuple[KernelEvent, ...]:
    """Return every event of a log, in its order; each once, however many lines it takes."""
    events: list[KernelEvent] = []
    for line in unfolded(list(parse_lines(raw, now=now, utc_offset_s=utc_offset_s))):
        event = _event(line)
        if event is None:
            continue
        head = _head_of(event, events)
        if head is None:
            events.append(event)
        else:
            events[head] = _joined(events[head], event)
    return tuple(events)


def event_of(kind: str, code: int, text: str, line: LogLine, pci: str | None) -> KernelEvent:
    """Return an XID or SXid of which the code and the words behind it are known."""
    details = _words(text) if kind == "xid" else _switch_words(text)
    return KernelEvent(kind=kind, line=line, text=text, pci=pci, code=code, details=details)


def place(events: Iterable[KernelEvent], start_ns: int, end_ns: int, wall_to_monotonic_ns: int) -> Placed:
    """Sort events by where they lie: only those inside the window count against it."""
    sorted_out: dict[str, list[KernelEvent]] = {
        name: [] for name in ("inside", "earlier", "later", "unplaced", "untrusted")
    }
    for event in events:
        moment = boot_to_monotonic_ns(event.line, wall_to_monotonic_ns)
        if not event.trusted:
            where = "untrusted"
        elif moment is None:
            where = "unplaced"
        elif moment < start_ns:
            where = "earlier"
        else:
            where = "inside" if moment <= end_ns else "later"
        sorted_out[where].append(event)
    return Placed(**{name: tuple(found) for name, found in sorted_out.items()})


def _event(line: LogLine) -> KernelEvent | None:
    for reader in (_xid, _sxid, _fallen, _mismatch, _probe):
        event = reader(line)
        if event is not None:
            return event
    for kind, pattern in _PLAIN:
        if pattern.search(line.text):
            found = _ADDRESS.findall(line.text)
            # A port tells the error of the device that it names last.
            place = found[-1 if kind == "aer" else 0] if found else None
            return KernelEvent(kind=kind, line=line, text=line.text, pci=place)
    return None


def _xid(line: LogLine) -> KernelEvent | None:
    found = _XID.search(line.text)
    if found is None:
        return None
    address, instance, compute, code, rest = found.groups()
    pid, process, text = _owner(rest)
    details: dict[str, object] = {}
    if instance is not None:
        details["gpu_instance"] = int(instance)
        details["compute_instance"] = None if compute is None else int(compute)
    details |= _words(text)
    return KernelEvent(
        kind="xid",
        line=line,
        text=text or line.text,
        pci=canonical_pci(address),
        code=int(code),
        pid=pid,
        process=process,
        details=details,
    )


def _owner(rest: str) -> tuple[int | None, str | None, str]:
    if not rest.startswith(("pid=", "name=")):
        return None, None, rest
    found = _OWNER.match(rest)
    if found is None:
        return None, None, rest
    pid, process, text = found.groups()
    number = int(pid) if pid and pid.isdigit() else None
    return number, None if process in (None, "<unknown>") else process, text


def _words(text: str) -> dict[str, object]:
    recovery = _RECOVERY.search(text)
    action = {"recovery_action": int(recovery[1], 16)} if recovery else {}
    unit = _SM_UNIT.search(text)
    where = {"sm_unit": f"GPC {unit[1]}, TPC {unit[2]}"} if unit else {}
    return {**_nvlink(text), **action, **where}


def _nvlink(text: str) -> dict[str, object]:
    """Read the body of XIDs 144-150: the first word is the interrupt's, its sub-code bits 20-25."""
    found = _NVLINK.match(text)
    if found is None:
        return {}
    words = found[4].split()
    return {
        "unit": found[1],
        "fatal": found[2] == "Fatal",
        "link": int(found[3]),
        "intr_info": words[0],
        "error_status": words[1] if len(words) > 1 else None,
        "subcode": int(words[0], 16) >> 20 & 0x3F,
        "hex_words": len(words),
    }


def _sxid(line: LogLine) -> KernelEvent | None:
    found = _SXID.search(line.text)
    if found is None:
        return None
    switch, address, code, text = found.groups()
    details = {"switch": switch, **_switch_words(text)}
    return KernelEvent(
        kind="sxid", line=line, text=text, pci=canonical_pci(address), code=int(code), details=details
    )


def _switch_words(text: str) -> dict[str, object]:
    link = re.search(r"\bLink (\d+)", text)
    details: dict[str, object] = {"link": int(link[1]) if link else None}
    words = _DATA.match(text)
    if words:
        details["data_words"] = [word.strip() for word in words[1].split(",")]
    else:
        details["fatal"] = text.startswith("Fatal")
    return details


def _fallen(line: LogLine) -> KernelEvent | None:
    found = _FALLEN.search(line.text) or _FALLEN_AT_LOAD.search(line.text)
    if found is None:
        return None
    return KernelEvent(
        kind="fallen_off_bus", line=line, text=line.text, pci=canonical_pci(found[1]), equivalent_xid=79
    )


def _mismatch(line: LogLine) -> KernelEvent | None:
    if not line.text.startswith("NVRM: API mismatch"):
        return None
    found = _MISMATCH.search(line.text)
    details = {} if found is None else {"client": found[3], "module": found[4]}
    return KernelEvent(
        kind="api_mismatch",
        line=line,
        text=line.text,
        pid=int(found[2]) if found and found[2] else None,
        process=found[1] if found else None,
        details=details,
    )


def _probe(line: LogLine) -> KernelEvent | None:
    found = _PROBE.search(line.text)
    if found:
        kind = "probe_failed" if found[1] == "failed" else "driver_not_bound"
        return KernelEvent(kind=kind, line=line, text=line.text, details={"devices": int(found[2])})
    if line.text.startswith("NVRM: This can occur when a driver"):
        names = _CONFLICT.search(line.text)
        listed = re.split(r",\s*|\s+or\s+", names[1]) if names else []
        return KernelEvent(
            kind="driver_not_bound", line=line, text=line.text, details={"conflicting": listed}
        )
    return None


def _head_of(event: KernelEvent, events: list[KernelEvent]) -> int | None:
    """Return the event that this line goes on: an SXid's head, a notice, the call of the OOM killer."""
    for number in range(len(events) - 1, max(-1, len(events) - 33), -1):
        head = events[number]
        if event.kind == "sxid" and "data_words" in event.details:
            same = (head.kind, head.code, head.pci) == ("sxid", event.code, event.pci)
            if same and "data_words" not in head.details:
                return number
        elif _goes_on(event, head):
            return number
    return None


def _goes_on(event: KernelEvent, head: KernelEvent) -> bool:
    """Return whether a line tells more of the event before it.

    A process is killed in three lines: who called the killer, its choice, the victim. A port tells in two.
    """
    if event.kind == head.kind == "driver_not_bound":
        return "conflicting" in event.details
    if event.kind == head.kind == "oom":
        return "invoked oom-killer" not in event.text and "Killed process" not in head.text
    told = "PCIe Bus Error"
    return event.kind == head.kind == "aer" and told in event.text and told not in head.text


def _joined(head: KernelEvent, line: KernelEvent) -> KernelEvent:
    details = {**line.details, **head.details}
    if line.kind == "sxid":
        link = details.get("link")
        return replace(head, details={**details, "link": line.details.get("link") if link is None else link})
    text = line.text if line.kind == "oom" else f"{head.text} {line.text}"
    return replace(head, details=details, text=text)
