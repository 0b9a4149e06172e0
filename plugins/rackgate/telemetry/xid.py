"""What an XID counts as in a test window, by the table in `xid.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rackgate.measurement import Symptom
from rackgate.telemetry.log_line import boot_to_monotonic_ns
from rackgate.verdict import Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rackgate.fault import FaultTimeline
    from rackgate.telemetry.kernel_log import KernelEvent

__all__ = [
    "JudgedEvent",
    "XidClass",
    "explained_by",
    "judge_events",
    "known_codes",
    "symptom_of",
    "worst_of",
    "xid_class",
]

_COUNTS = {"FAIL": Verdict.FAIL, "WARN": Verdict.WARN, "INFO": Verdict.PASS}
_STRICT = frozenset({"signoff", "strict"})
# Events without an XID, and what they count as; lines that only tell are left out of the judgement.
_OTHERS = {
    "api_mismatch": (Verdict.FAIL, "driver library and kernel module differ", "Reload the module or reboot."),
    "driver_not_bound": (
        Verdict.FAIL,
        "another driver has the cards",
        "Blacklist nouveau (and its like), rebuild the initramfs, reboot.",
    ),
    "probe_failed": (Verdict.FAIL, "the driver could not take the card", "See the NVRM lines before it."),
    "no_adapter": (Verdict.FAIL, "the driver found no card", "Is the card listed by lspci? Who has it?"),
    "aer": (
        Verdict.WARN,
        "PCIe error report",
        "Compare link width and replays of this slot; reseat the card.",
    ),
    "edac": (Verdict.WARN, "error in the host's memory", "Read the EDAC counters; replace the named module."),
    "oom": (Verdict.FAIL, "the host ran out of memory and killed a process", "Who was killed, who grew?"),
    "mlx5": (Verdict.WARN, "network adapter error", "See the port's state and error counters."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class XidClass:
    """One row of the table. `counts_as` is None for a code that the table does not have."""

    code: int
    meaning: str
    counts_as: Verdict | None
    action: str
    next_step: str
    repeats: int | None = None
    repeats_only_signoff: bool = False
    signoff: Verdict | None = None
    rma: bool = False
    fatal_field: bool = False
    recovery_field: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    """An event with what it counts as, whom it belongs to, and whether we caused it."""

    event: KernelEvent
    verdict: Verdict
    entity: str | None
    meaning: str
    next_step: str
    expected: bool = False


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("rackgate.telemetry") / "xid.toml").read_text("utf-8"))


def known_codes() -> tuple[int, ...]:
    """Return every XID that the table has."""
    return tuple(sorted(int(code) for code in _table()["xid"]))


def xid_class(code: int) -> XidClass:
    """Return the table's row for an XID; a code that it lacks counts as UNKNOWN."""
    row = _table()["xid"].get(str(code))
    if row is None:
        step = "Look the code up in NVIDIA's XID catalogue, and tell us its row."
        return XidClass(
            code=code, meaning="not in our table", counts_as=None, action="UNKNOWN", next_step=step
        )
    step = _table()["actions"]["RMA" if row.get("rma") else row["action"]]
    return XidClass(
        code=code,
        meaning=row["meaning"],
        counts_as=_COUNTS[row["counts_as"]],
        action=row["action"],
        next_step=step,
        repeats=row.get("repeats"),
        repeats_only_signoff=row.get("repeats_only_signoff", False),
        signoff=_COUNTS[row["signoff"]] if "signoff" in row else None,
        rma=row.get("rma", False),
        fatal_field=row.get("fatal_field", False),
        recovery_field=row.get("recovery_field", False),
    )


def judge_events(
    events: Iterable[KernelEvent],
    *,
    profile: str = "ci",
    card_of: Mapping[str, str] | None = None,
    injected: Callable[[KernelEvent, str | None], bool] | None = None,
) -> tuple[JudgedEvent, ...]:
    """Return what each event of a window counts as, the worst first.

    `card_of` maps canonical PCI addresses to entities; an event of an address that it lacks keeps its
    address and belongs to nobody. `injected` says whether a fault of ours explains an event.
    """
    listed = tuple(events)
    cards = card_of or {}
    counts = Counter((event.code, event.pci) for event in listed if event.kind == "xid")
    judged = [
        _judged(event, cards.get(event.pci or ""), counts[event.code, event.pci], profile, injected)
        for event in listed
        if event.kind in ("xid", "sxid", "fallen_off_bus") or event.kind in _OTHERS
    ]
    return tuple(sorted(judged, key=lambda one: -one.verdict.badness))


def symptom_of(judged: JudgedEvent) -> Symptom:
    """Return an event as a symptom: `xid:79`, `kernel:oom`, of a WARN `xid:149:nonfatal`, `sxid:nonfatal`."""
    event = judged.event
    where = judged.entity or event.pci or "no declared card"
    if event.kind in _OTHERS:
        return Symptom(key=f"kernel:{event.kind}", seen=event.text)
    code = event.code if event.code is not None else event.equivalent_xid
    switch = event.kind == "sxid"
    graded = switch or (code is not None and xid_class(code).fatal_field)
    end = ":nonfatal" if graded and judged.verdict is Verdict.WARN else ""
    key = f"sxid{end}" if switch else f"xid:{code}{end}"
    return Symptom(key=key, seen=f"{'SXid' if switch else 'XID'} {code} on {where}")


def _judged(
    event: KernelEvent,
    entity: str | None,
    count: int,
    profile: str,
    injected: Callable[[KernelEvent, str | None], bool] | None,
) -> JudgedEvent:
    ours = bool(injected and injected(event, entity))
    if event.kind == "sxid":
        verdict, meaning, step = _switch(event)
    elif event.kind in _OTHERS:
        verdict, meaning, step = _OTHERS[event.kind]
    else:
        row = xid_class(event.code if event.code is not None else event.equivalent_xid or 0)
        verdict, meaning, step = (
            _xid_verdict(row, event, count, profile, ours=ours),
            row.meaning,
            row.next_step,
        )
    return JudgedEvent(
        event=event, verdict=verdict, entity=entity, meaning=meaning, next_step=step, expected=ours
    )


def _xid_verdict(row: XidClass, event: KernelEvent, count: int, profile: str, *, ours: bool) -> Verdict:
    if ours:
        return Verdict.PASS
    if row.counts_as is None:
        return Verdict.UNKNOWN
    if row.fatal_field or row.recovery_field:
        return _by_its_words(row, event)
    repeated = row.repeats is not None and count >= row.repeats
    if repeated and (profile in _STRICT or not row.repeats_only_signoff):
        return Verdict.FAIL
    stricter = row.signoff if profile in _STRICT else None
    return stricter or row.counts_as


def _by_its_words(row: XidClass, event: KernelEvent) -> Verdict:
    """Judge a code whose message decides; one that we cannot read is not taken for harmless."""
    if row.recovery_field:
        return Verdict.PASS if event.details.get("recovery_action") == 0 else Verdict.FAIL
    fatal = event.details.get("fatal")
    if fatal is None:
        return Verdict.UNKNOWN
    return Verdict.FAIL if fatal else Verdict.WARN


def _switch(event: KernelEvent) -> tuple[Verdict, str, str]:
    table = _table()
    code = event.code or 0
    ranges: Sequence[Sequence[int]] = table["sxid_fatal_ranges"]
    always = code in table["sxid_always_fatal"] or any(low <= code <= high for low, high in ranges)
    fatal = always or bool(event.details.get("fatal"))
    step = "Find both ends of the link in the fabric manager's log; a fatal one wants the domain reset."
    return Verdict.FAIL if fatal else Verdict.WARN, f"NVSwitch error {code}", step


def explained_by(
    faults: Iterable[FaultTimeline],
    hit: Mapping[str, Collection[str]],
    wall_to_monotonic_ns: int,
    slack_s: float = 5.0,
) -> Callable[[KernelEvent, str | None], bool]:
    """Return a function that says whether one of our faults explains an event.

    It does for the codes that the fault's kind makes, on the cards that it hits (`hit` maps the fault's
    entity to them), from its injection until `slack_s` after it was healed.
    """
    listed = tuple(faults)

    def explains(event: KernelEvent, entity: str | None) -> bool:
        moment = boot_to_monotonic_ns(event.line, wall_to_monotonic_ns)
        code = event.code if event.code is not None else event.equivalent_xid
        if moment is None or entity is None:
            return False
        return any(
            code in _table()["injected"].get(fault.kind, ())
            and entity in hit.get(fault.entity, ())
            and fault.injected_ns is not None
            and fault.injected_ns <= moment <= (fault.healed_ns or moment) + slack_s * 1e9
            for fault in listed
        )

    return explains


def worst_of(judged: Iterable[JudgedEvent]) -> Verdict:
    """Return the worst verdict; of no event, PASS."""
    return worst([Verdict.PASS, *(one.verdict for one in judged)])
