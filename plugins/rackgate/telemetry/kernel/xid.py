"""What an XID counts as in a test window, by the table in `xid.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Symptom
from rackgate.nouns.verdict import Verdict
from rackgate.statistics.binomial import binomial_cdf
from rackgate.telemetry.kernel.event_kinds import CARD_KINDS, KINDS, LOOKALIKE
from rackgate.telemetry.kernel.kernel_log import KernelEvent
from rackgate.telemetry.kernel.log_line import boot_to_monotonic_ns

_COUNTS = {"FAIL": Verdict.FAIL, "WARN": Verdict.WARN, "INFO": Verdict.PASS}
_STRICT = frozenset({"signoff", "strict"})
_ONE_EXCEPTION_US = 1_000_000
_CHANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class XidClass:
    """One row of the table. `counts_as` is None for a code that the table does not have.

    With `same_unit` repeats count where they name the same unit of the card; with `rising` a rate that rises
    is a failure; with `wants_remapped` a row that still waits for a reset is.
    """

    code: int
    meaning: str
    counts_as: Verdict | None
    action: str
    next_step: str
    repeats: int | None = None
    repeats_only_signoff: bool = False
    same_unit: bool = False
    rising: bool = False
    wants_remapped: bool = False
    signoff: Verdict | None = None
    rma: bool = False
    fatal_field: bool = False
    recovery_field: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    """An event with what it counts as, whom it belongs to, and the fault of ours that explains it, if any."""

    event: KernelEvent
    verdict: Verdict
    entity: str | None
    meaning: str
    next_step: str
    fault: FaultTimeline | None = None

    @property
    def of_card(self) -> bool:
        """Whether a card or a switch told it."""
        return self.event.kind in CARD_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a window's events are judged by.

    `card_of` maps canonical PCI addresses to entities; an event of an address that it lacks keeps its
    address and belongs to nobody. `injected` gives the fault of ours that explains an event. `window_us`
    is from when to when, by the events' clock. `pending` holds how many row remaps wait for a reset, by
    entity, where that is known; it is None where another check asks for them.
    """

    profile: str = "ci"
    card_of: Mapping[str, str] = field(default_factory=dict)
    injected: Callable[[KernelEvent, str | None], FaultTimeline | None] | None = None
    window_us: tuple[float, float] | None = None
    pending: Mapping[str, float] | None = None


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("rackgate.telemetry.kernel") / "xid.toml").read_text("utf-8"))


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
        same_unit=row.get("same_unit", False),
        rising=row.get("rising", False),
        wants_remapped=row.get("wants_remapped", False),
        signoff=_COUNTS[row["signoff"]] if "signoff" in row else None,
        rma=row.get("rma", False),
        fatal_field=row.get("fatal_field", False),
        recovery_field=row.get("recovery_field", False),
    )


def judge_events(
    events: Iterable[KernelEvent], circumstances: Circumstances | None = None
) -> tuple[JudgedEvent, ...]:
    """Return what each event of a window counts as, the worst first; several lines of one exception once."""
    around = circumstances or Circumstances()
    listed = _once_each(events)
    alike: dict[tuple[object, ...], list[KernelEvent]] = {}
    for event in listed:
        alike.setdefault(_likeness(event), []).append(event)
    judged = [_judged(event, alike[_likeness(event)], around) for event in listed]
    return tuple(sorted(judged, key=lambda one: -one.verdict.badness))


def symptom_of(judged: JudgedEvent) -> Symptom:
    """Return an event as a symptom: `xid:79`, `kernel:oom`, of a WARN `xid:149:nonfatal`, `sxid:nonfatal`."""
    event = judged.event
    where = judged.entity or event.pci or "no declared card"
    if not event.trusted:
        return Symptom(key="kernel:lookalike", seen=event.text)
    if event.kind in KINDS:
        return Symptom(key=f"kernel:{event.kind}", seen=event.text)
    code = event.code if event.code is not None else event.equivalent_xid
    switch = event.kind == "sxid"
    graded = switch or (code is not None and xid_class(code).fatal_field)
    end = ":nonfatal" if graded and judged.verdict is Verdict.WARN else ""
    key = f"sxid{end}" if switch else f"xid:{code}{end}"
    return Symptom(key=key, seen=f"{'SXid' if switch else 'XID'} {code} on {where}")


def _once_each(events: Iterable[KernelEvent]) -> tuple[KernelEvent, ...]:
    """Leave out lines that go on with an exception: within a second, of its unit of the card or of none."""
    kept: list[KernelEvent] = []
    last: dict[tuple[object, ...], KernelEvent] = {}
    for event in sorted(events, key=lambda one: _moment_us(one) or 0.0):
        if event.kind != "xid" or not event.trusted or not xid_class(event.code or 0).same_unit:
            kept.append(event)
            continue
        head, here = last.get((event.code, event.pci)), _moment_us(event)
        near = head is not None and here is not None and here - (_moment_us(head) or 0.0) <= _ONE_EXCEPTION_US
        if near and head is not None and _unit(event) in (None, _unit(head)):
            continue
        last[event.code, event.pci] = event
        kept.append(event)
    return tuple(kept)


def _moment_us(event: KernelEvent) -> float | None:
    if event.line.boot_us is not None:
        return float(event.line.boot_us)
    return None if event.line.wall_s is None else event.line.wall_s * 1e6


def _unit(event: KernelEvent) -> object:
    return event.details.get("sm_unit")


def _likeness(event: KernelEvent) -> tuple[object, ...]:
    """Return what an event shares with those that it is a repeat of."""
    same_unit = event.kind == "xid" and xid_class(event.code or 0).same_unit
    return event.kind, event.code, event.pci, event.trusted, _unit(event) if same_unit else None


def _judged(event: KernelEvent, alike: Sequence[KernelEvent], around: Circumstances) -> JudgedEvent:
    entity = around.card_of.get(event.pci or "")
    fault = around.injected(event, entity) if around.injected and event.trusted else None
    if not event.trusted:
        verdict, meaning, step = LOOKALIKE.counts_as, LOOKALIKE.meaning, LOOKALIKE.next_step
    elif event.kind == "sxid":
        verdict, meaning, step = _switch(event)
    elif event.kind in KINDS:
        kind = KINDS[event.kind]
        verdict, meaning, step = kind.counts_as, kind.meaning, kind.next_step
    else:
        row = xid_class(event.code if event.code is not None else event.equivalent_xid or 0)
        verdict = Verdict.PASS if fault else _xid_verdict(row, event, entity, alike, around)
        meaning, step = row.meaning, row.next_step
    return JudgedEvent(
        event=event, verdict=verdict, entity=entity, meaning=meaning, next_step=step, fault=fault
    )


def _xid_verdict(
    row: XidClass,
    event: KernelEvent,
    entity: str | None,
    alike: Sequence[KernelEvent],
    around: Circumstances,
) -> Verdict:
    if row.counts_as is None:
        return Verdict.UNKNOWN
    if row.fatal_field or row.recovery_field:
        return _by_its_words(row, event)
    strict = around.profile in _STRICT
    repeated = row.repeats is not None and len(alike) >= row.repeats
    if repeated and (strict or not row.repeats_only_signoff):
        return Verdict.FAIL
    if row.rising and _rises(alike, around.window_us):
        return Verdict.FAIL
    if row.wants_remapped and around.pending is not None:
        return _remapped(around.pending.get(entity or ""))
    return (row.signoff if strict else None) or row.counts_as


def _rises(alike: Sequence[KernelEvent], window_us: tuple[float, float] | None) -> bool:
    """Return whether more events lie in the later half than an even rate gives in 5 % of cases."""
    moments = [moment for event in alike if (moment := _moment_us(event)) is not None]
    if not moments:
        return False
    start, end = window_us or (min(moments), max(moments))
    later = sum(moment > (start + end) / 2 for moment in moments)
    return 1.0 - binomial_cdf(later - 1, len(moments), 0.5) <= _CHANCE


def _remapped(pending: float | None) -> Verdict:
    """Judge a remapped row by whether its card still waits for the reset that it needs."""
    if pending is None:
        return Verdict.UNKNOWN
    return Verdict.FAIL if pending else Verdict.WARN


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
) -> Callable[[KernelEvent, str | None], FaultTimeline | None]:
    """Return a function that gives the one of our faults that explains an event.

    It does so for the codes that the fault's kind makes, on the cards that it hits (`hit` maps the fault's
    entity to them), from its injection until `slack_s` after it was healed.
    """
    listed = tuple(faults)

    def explains(event: KernelEvent, entity: str | None) -> FaultTimeline | None:
        moment = boot_to_monotonic_ns(event.line, wall_to_monotonic_ns)
        code = event.code if event.code is not None else event.equivalent_xid
        if moment is None or entity is None:
            return None
        fitting = (
            fault
            for fault in listed
            if code in _table()["injected"].get(fault.kind, ())
            and entity in hit.get(fault.entity, ())
            and fault.injected_ns is not None
            and fault.injected_ns <= moment <= (fault.healed_ns or moment) + slack_s * 1e9
        )
        return next(fitting, None)

    return explains
