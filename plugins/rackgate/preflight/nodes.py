"""Preflight of nodes: cards, hosts and chassis put together."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from rackgate.hosts.facts.demands import demands_of
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.node_differences import compared_facts
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing, truth
from rackgate.nouns.node import Card, Node
from rackgate.nouns.target import Target
from rackgate.preflight.card_memory import MEMORY_IN_USE
from rackgate.preflight.cards import probe_readings
from rackgate.preflight.chassis import firmware_of_nodes, probe_chassis
from rackgate.preflight.driver import probe_domains, probe_driver
from rackgate.preflight.host_findings import probe_hosts, probe_same
from rackgate.preflight.host_metrics import not_measured, of_group
from rackgate.preflight.hosts import HostInspection
from rackgate.preflight.inventory import probe_holders, probe_listing, probe_pins
from rackgate.preflight.links import probe_links
from rackgate.telemetry.reading import REQUIRED, Reading
from rackgate.telemetry.source import Source

_POLLS = 3


def probe_cards(target: Target) -> ProbeResults:
    """Return whether each card is listed by its node's source, gives the required signals, and is sound."""
    from rackgate.telemetry.assembly import card_source_of, plan_of

    plan, found = plan_of(target), {}
    with ThreadPoolExecutor(max_workers=16) as pool:
        looks = pool.map(lambda node: _best_poll(card_source_of(node, plan)), target.nodes)
        for node, (readings, listed) in zip(target.nodes, looks, strict=True):
            found.update(measured_cards(node, readings, listed))
    return found


def memory_before_engines(target: Target) -> ProbeResults:
    """Return the memory in use of each card before this run starts engines; nothing if it starts none."""
    if all(engine.runs_already for engine in target.engines):
        return {}
    return {key: one for key, one in probe_cards(target).items() if key[0] == MEMORY_IN_USE}


def measured_cards(
    node: Node, readings: Sequence[Reading], listed: tuple[ListedCard, ...] | None
) -> ProbeResults:
    """Return the measurements of a node's cards by one poll, undeclared cards included."""
    first = next((one for one in readings if one.value is None), None)
    why = (first.reason or Reason.ABSENT, first.detail) if first else (Reason.ABSENT, "no answer")
    found = probe_listing(node, listed, why)
    for card in node.cards:
        mine = [one for one in readings if one.entity == card.name] or _silent(node, card)
        found.update(_card_measurements(card.name, mine))
        found.update(_soundness(card.name, mine))
    return found


def _silent(node: Node, card: Card) -> list[Reading]:
    """Return readings that say that a card is absent."""
    from rackgate.telemetry.reading import Reading

    now_ns, text = time.perf_counter_ns(), f"the source of {node.name} says nothing of this card"
    return [Reading(now_ns, node.name, card.name, name, None, Reason.ABSENT, text) for name in REQUIRED]


def _soundness(card: str, readings: list[Reading]) -> ProbeResults:
    """Return the counters of one card; for a silent card each has the reason."""
    found = probe_readings(readings, [card])
    if any(one.value is not None for one in readings):
        return found
    first = readings[0]
    for name in of_group("card"):
        found.setdefault((name, card), not_measured(name, card, first.reason, first.detail))
    return found


def measured_nodes(target: Target, look: HostInspection, own_groups: Collection[int] = ()) -> HostInspection:
    """Return a host inspection with its measurements and those of the controllers.

    `own_groups` are the process groups of engines that this run started on this machine before the look.
    """
    firmware = firmware_of_nodes(target.nodes)
    probes = probe_chassis(target.nodes) | dict(look.probes)
    probes |= measured_hosts(target, look.facts, own_groups, firmware)
    return HostInspection(facts=look.facts, probes=probes, firmware=firmware)


def recorded_facts(
    target: Target,
    facts: Mapping[str, Mapping[str, Fact]],
    firmware: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, dict[str, str | None]]]:
    """Return, by node and fact, `value` or the `reason` and `detail` why there is none, for the records."""
    return {
        node: {
            name: {"value": one.value, "reason": one.reason, "detail": one.detail}
            for name, one in known.items()
        }
        for node, known in compared_nodes(target, facts, firmware).items()
    }


def compared_nodes(
    target: Target,
    facts: Mapping[str, Mapping[str, Fact]],
    firmware: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> dict[str, dict[str, Fact]]:
    """Return by node the facts that should be the same on all of them."""
    named = {str(one.settings["image"]) for one in target.engines if one.settings.get("image")}
    for node in target.nodes:
        named |= {*node.expect.images, *filter(None, [node.expect.container_image])}
    return {
        node: compared_facts(known, firmware.get(node, {}), sorted(named)) for node, known in facts.items()
    }


def measured_hosts(
    target: Target,
    facts: Mapping[str, Mapping[str, Fact]],
    own_groups: Collection[int] = (),
    firmware: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> ProbeResults:
    """Return the measurements of host facts, of each node and of all compared."""
    found = probe_hosts(facts, demands_of(target)) | probe_domains(target.nodes, facts)
    found |= probe_same(facts, compared_nodes(target, facts, firmware))
    for node in target.nodes:
        if node.name in facts:
            known = facts[node.name]
            found |= probe_pins(node, known, firmware.get(node.name, {})) | probe_driver(node, known)
            found |= probe_links(node, known)
            found |= probe_holders(node, known["driver_answer"], own_groups)
    return found


def _best_poll(source: Source) -> tuple[list[Reading], tuple[ListedCard, ...] | None]:
    """Poll until the source answers, at most three times: one lost scrape is no lost card.

    Returns the readings and every card that the source lists, None if it does not say.
    """
    from rackgate.telemetry.sampler import polled
    from rackgate.telemetry.source import ListsCards

    readings = polled(source)
    for _ in range(_POLLS - 1):
        if any(one.value is not None for one in readings):
            break
        time.sleep(0.2)
        readings = polled(source) or readings
    listed = source.listed() if isinstance(source, ListsCards) else None
    source.close()
    return readings, listed


def _card_measurements(card: str, readings: list[Reading]) -> ProbeResults:
    present, coverage = "card_present", "telemetry_coverage"
    if not any(one.value is not None for one in readings):
        first = readings[0]
        reason, detail = first.reason or Reason.ABSENT, first.detail
        seen = truth(present, card, False, detail)
        if reason is not Reason.ABSENT:
            seen = missing(present, card, "bool", reason, detail)
        return {(present, card): seen, (coverage, card): missing(coverage, card, "ratio", reason, detail)}
    said = {one.field: one for one in readings}
    lacking = [name for name in REQUIRED if name not in said or said[name].value is None]
    share = 1 - len(lacking) / len(REQUIRED)
    why = {name: f"{said[name].reason} ({said[name].detail})" for name in lacking if name in said}
    detail = "; ".join(f"{name}: {why.get(name, 'nobody asked for it')}" for name in lacking)
    covered = Measurement(
        metric=coverage,
        entity=card,
        value=share,
        unit="ratio",
        count=len(REQUIRED),
        detail=detail,
        source="probe",
    )
    return {
        (present, card): truth(present, card, True, "listed"),
        (coverage, card): covered,
    }
