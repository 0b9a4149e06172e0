"""Preflight's look at cards and hosts: readings and facts -> measurements by (metric, entity)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.telemetry.fabric import FabricCard, judge_fabric
from rackgate.telemetry.host_findings import host_findings, outliers
from rackgate.telemetry.xid import judge_events
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rackgate.telemetry.event_book import EventBook
    from rackgate.telemetry.host import Fact
    from rackgate.telemetry.reading import Reading

__all__ = ["CARD_PROBES", "NODE_PROBES", "probe_events", "probe_fabric", "probe_hosts", "probe_readings"]

Probes = dict[tuple[str, str], Measurement]

CARD_PROBES = {
    "recovery_action": ("code", "What the driver wants done to the card: 0 nothing, 1 reset, 2 reboot, ..."),
    "row_remap_pending": ("bool", "1 if a memory row waits for a reset to be remapped."),
    "row_remap_failed": ("bool", "1 if a memory row could not be remapped: no spare is left."),
    "remapped_rows_uncorrectable": ("rows", "Rows ever remapped after uncorrectable errors."),
    "ecc_volatile_uncorrectable": ("errors", "Uncorrectable memory errors since the driver was loaded."),
    "ecc_aggregate_uncorrectable": ("errors", "Uncorrectable memory errors of the card's whole life."),
    "nvlinks_up": ("links", "NVLink links that are active."),
    "pcie_width_lost": ("lanes", "PCIe lanes below what the card can have."),
    "memory_in_use_mib": ("MiB", "Memory of the card that is in use before any engine is started."),
}
"""Unit and definition of each probe of a card."""

NODE_PROBES = {
    "host_failures": ("findings", "Findings of class FAIL in the host's facts: module, driver, clock, ..."),
    "host_warnings": ("findings", "Findings of class WARN in the host's facts."),
    "host_outliers": ("facts", "Facts in which the node differs from most other nodes."),
    "clock_offset_s": ("s", "Distance of the node's clock from its time server's."),
    "leak_detectors_wet": ("detectors", "Leak detectors that are or were wet."),
    "leak_detectors_unknown": ("detectors", "Leak detectors that are not enabled or say nothing."),
    "power_supplies_bad": ("supplies", "Power supplies that are not enabled and healthy."),
    "xids_since_boot": ("events", "XIDs of class FAIL in the kernel log before the run."),
    "fabric_outside": ("cards", "Cards that are not in the NVLink domain of most."),
}
"""Unit and definition of each probe of a node."""

_SAME_NAME = (
    *("recovery_action", "row_remap_pending", "row_remap_failed", "remapped_rows_uncorrectable"),
    *("ecc_volatile_uncorrectable", "ecc_aggregate_uncorrectable", "nvlinks_up"),
    *("leak_detectors_wet", "leak_detectors_unknown", "power_supplies_bad", "clock_offset_s"),
)
_UNITS = {name: unit for name, (unit, _) in (CARD_PROBES | NODE_PROBES).items()}
_FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}


def probe_readings(readings: Iterable[Reading], entities: Sequence[str]) -> Probes:
    """Return what the latest readings say of each entity; of a field that nobody read, that it is absent."""
    latest = {(one.entity, one.field): one for one in readings}
    found: Probes = {}
    for entity in entities:
        for name in _SAME_NAME:
            if (entity, name) in latest:
                found[name, entity] = _from(name, entity, latest[entity, name])
        used = latest.get((entity, "memory_used_mib"))
        if used is not None:
            found["memory_in_use_mib", entity] = _from("memory_in_use_mib", entity, used)
        width, best = latest.get((entity, "pcie_width")), latest.get((entity, "pcie_width_max"))
        if width is not None and best is not None:
            found["pcie_width_lost", entity] = _lost_lanes(entity, width, best)
    return found


def probe_hosts(facts: Mapping[str, Mapping[str, Fact]], cards: Mapping[str, int]) -> Probes:
    """Return findings and outliers of each node; `cards` is how many each should have."""
    found: Probes = {}
    different = outliers(facts)
    for node, known in facts.items():
        findings = host_findings(known, cards=cards.get(node, 0))
        unread = _unread(known)
        for name, verdict in (("host_failures", Verdict.FAIL), ("host_warnings", Verdict.WARN)):
            chosen = [one for one in findings if one.verdict is verdict]
            open_question = next((one for one in findings if one.verdict is Verdict.UNKNOWN), None)
            if unread is not None:
                found[name, node] = _not_read(name, node, unread)
            elif not chosen and open_question is not None and open_question.step != "time":
                text = f"{open_question.step}: {open_question.text}. {open_question.next_step}"
                found[name, node] = missing(name, node, _UNITS[name], Reason.ABSENT, text)
            else:
                text = "; ".join(f"{one.step}: {one.text}. {one.next_step}" for one in chosen)
                found[name, node] = _counted(name, node, len(chosen), text)
        mine = [one for one in different if one.node == node]
        text = "; ".join(f"{one.fact} {one.value}, others {one.others} ({one.share})" for one in mine)
        name = "host_outliers"
        found[name, node] = _not_read(name, node, unread) if unread else _counted(name, node, len(mine), text)
        offset = known.get("clock_offset_s")
        if offset is not None:
            found["clock_offset_s", node] = _offset(node, offset)
    return found


def probe_fabric(readings: Iterable[Reading], cards: Mapping[str, str]) -> Probes:
    """Return how many cards of each node are outside its NVLink domain; `cards` maps cards to nodes."""
    latest = {(one.entity, one.field): one for one in readings}
    found: Probes = {}
    for node in dict.fromkeys(cards.values()):
        listed = [_fabric_card(card, latest) for card, owner in cards.items() if owner == node]
        finding = judge_fabric(listed)
        name = "fabric_outside"
        if finding.verdict is None:  # one card without a fabric: there is nothing to be outside of
            found[name, node] = _counted(name, node, 0, finding.text)
        elif finding.verdict is Verdict.UNKNOWN:
            found[name, node] = missing(name, node, "cards", Reason.ABSENT, finding.text)
        else:
            outside = len(finding.outside) if finding.outside or finding.domains else len(listed)
            found[name, node] = _counted(name, node, outside, finding.text)
    return found


def probe_events(books: Mapping[str, EventBook], problems: Mapping[str, str], before_ns: int) -> Probes:
    """Return XIDs of class FAIL that a node's kernel log has from before the run."""
    name, found = "xids_since_boot", {}
    for node, book in books.items():
        earlier = book.window(before_ns, before_ns).earlier
        judged = [one for one in judge_events(earlier, card_of=book.card_of) if one.verdict is Verdict.FAIL]
        if problems.get(node) and not judged:
            found[name, node] = missing(name, node, "events", Reason.NO_PERMISSION, problems[node])
            continue
        text = "; ".join(
            f"{one.entity or one.event.pci or node}: {one.meaning}. {one.next_step}" for one in judged[:3]
        )
        found[name, node] = _counted(name, node, len(judged), text)
    return found


def _unread(known: Mapping[str, Fact]) -> Fact | None:
    """Return the fact that shows that the host was not read: in time, or at all."""
    late = next((fact for fact in known.values() if fact.reason is Reason.TIMEOUT), None)
    kernel = known.get("kernel")
    return late or (kernel if kernel is not None and kernel.value is None else None)


def _not_read(name: str, node: str, fact: Fact) -> Measurement:
    return missing(name, node, _UNITS[name], fact.reason or Reason.ABSENT, fact.detail)


def _from(name: str, entity: str, reading: Reading) -> Measurement:
    if reading.value is None:
        reason = reading.reason or Reason.ABSENT
        return missing(name, entity, _UNITS[name], reason, reading.detail)
    return Measurement(
        metric=name, entity=entity, value=reading.value, unit=_UNITS[name], count=1, source="probe"
    )


def _lost_lanes(entity: str, width: Reading, best: Reading) -> Measurement:
    name = "pcie_width_lost"
    for one in (width, best):
        if one.value is None:
            return _from(name, entity, one)
    lost = (best.value or 0.0) - (width.value or 0.0)
    return Measurement(
        metric=name,
        entity=entity,
        value=lost,
        unit="lanes",
        count=1,
        detail=f"x{width.value:g} of x{best.value:g}",
        source="probe",
    )


def _offset(node: str, fact: Fact) -> Measurement:
    name = "clock_offset_s"
    if fact.value is None:
        return missing(name, node, "s", fact.reason or Reason.ABSENT, fact.detail)
    value = abs(float(fact.value))
    return Measurement(metric=name, entity=node, value=value, unit="s", count=1, source="probe")


def _counted(name: str, entity: str, number: int, detail: str) -> Measurement:
    return Measurement(
        metric=name,
        entity=entity,
        value=float(number),
        unit=_UNITS[name],
        count=1,
        detail=detail,
        source="probe",
    )


def _fabric_card(card: str, latest: Mapping[tuple[str, str], Reading]) -> FabricCard:
    state, clique = latest.get((card, "fabric_state")), latest.get((card, "fabric_clique"))
    if state is None or state.value is None:
        unsupported = state is not None and state.reason is Reason.UNSUPPORTED
        return FabricCard(card=card, state="not_supported" if unsupported else "")
    number = None if clique is None or clique.value is None else int(clique.value)
    # Readings are numbers: the cluster's UUID is not among them, the clique tells cards of a node apart.
    return FabricCard(
        card=card,
        state=_FABRIC_STATES.get(int(state.value), ""),
        cluster_uuid="this node's",
        clique=number,
    )
