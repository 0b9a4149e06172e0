"""Cards by `nvidia-smi`: recovery action, ECC, NVLinks, MIG instances, NVLink domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rackgate.hosts.facts.fabric import FabricCard, judge_fabric
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.tools.nvidia_smi_inventory import (
    ListedCard,
    listed_as,
    mig_instances,
    parse_inventory,
    parse_links,
)
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.nouns.node import Card, Node
from rackgate.preflight.host_metrics import measured, not_measured

_ACTIONS = {"none": 0.0, "reset": 1.0, "reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0}
"""The driver's words for NVML's codes; an unknown word is code 5."""

_UNKNOWN_ACTION = 5.0


def probe_driver(node: Node, facts: Mapping[str, Fact]) -> ProbeResults:
    """Return the measurements of each card of a node, or why the driver's tool gives none."""
    answer, links = facts["driver_answer"], facts["nvlinks"]
    inventory = parse_inventory(answer.value or "")
    found: ProbeResults = {}
    for card in node.cards:
        listed = listed_as(card, inventory.cards) if inventory else None
        if listed is not None and listed.recovery_action is not None:
            found["recovery_action", card.name] = _action(card, listed.recovery_action)
        found["sram_uncorrectable", card.name] = _sram(card, listed, answer)
        found["ecc_off", card.name] = _ecc(card, listed, answer)
        if node.expect.mig is not None:
            found["mig_differences", card.name] = _mig(card, listed, facts, node.expect.mig)
        if node.expect.nvlinks is not None:
            found["nvlinks_lost", card.name] = _links(card, links, node.expect.nvlinks)
    return found


def probe_domains(nodes: Iterable[Node], facts: Mapping[str, Mapping[str, Fact]]) -> ProbeResults:
    """Return how many cards of each node are outside the NVLink domain of most cards of the rack."""
    asked = [node for node in nodes if node.expect.fabric and facts.get(node.name)]
    cards: dict[str, list[FabricCard]] = {node.name: [] for node in asked}
    for node in asked:
        inventory = parse_inventory(facts[node.name]["driver_answer"].value or "")
        for card in node.cards:
            listed = listed_as(card, inventory.cards) if inventory else None
            cards[node.name].append(_fabric_card(card, listed))
    whole = judge_fabric([card for mine in cards.values() for card in mine])
    found: ProbeResults = {}
    name = "fabric_outside"
    for node_name, mine in cards.items():
        unread = [card.card for card in mine if not card.state]
        outside = [card for card in mine if card.card in whole.outside]
        if unread and not outside:
            text = f"the driver does not tell the domain of {', '.join(unread)}"
            found[name, node_name] = not_measured(name, node_name, Reason.ABSENT, text)
            continue
        text = "; ".join(f"{card.card}: {card.domain or card.state}" for card in outside)
        main = next(iter(whole.domains), "none")
        found[name, node_name] = _value(
            name, node_name, len(outside), f"{text}; most are in {main}" if text else main
        )
    return found


def _fabric_card(card: Card, listed: ListedCard | None) -> FabricCard:
    if listed is None:
        return FabricCard(card=card.name, state="")
    state = (listed.fabric_state or "not supported").lower().replace(" ", "_")
    cluster, _, clique = (listed.fabric_domain or "").partition("/")
    return FabricCard(
        card=card.name,
        state=state,
        cluster_uuid=cluster or None,
        clique=int(clique) if clique.isdigit() else None,
    )


def _action(card: Card, word: str) -> Measurement:
    code = _ACTIONS.get(word.removeprefix("gpu ").removeprefix("node "), _UNKNOWN_ACTION)
    return _value("recovery_action", card.name, code, f"the driver says: {word}")


def _sram(card: Card, listed: ListedCard | None, answer: Fact) -> Measurement:
    name = "sram_uncorrectable"
    if listed is None or listed.sram_uncorrectable is None:
        return _unsaid(name, card, answer, "errors of on-chip memory")
    return _value(name, card.name, listed.sram_uncorrectable, "")


def _ecc(card: Card, listed: ListedCard | None, answer: Fact) -> Measurement:
    name = "ecc_off"
    if listed is None or listed.ecc is None:
        return _unsaid(name, card, answer, "whether error correction is on")
    return _value(name, card.name, float(listed.ecc != "Enabled"), f"ECC is {listed.ecc.lower()}")


def _mig(
    card: Card, listed: ListedCard | None, facts: Mapping[str, Fact], declared: int | tuple[str, ...]
) -> Measurement:
    name = "mig_differences"
    if listed is None:
        return _unsaid(name, card, facts["driver_answer"], "MIG instances")
    if not isinstance(declared, int):
        return _profiles(card, listed, facts["cards_listed"], declared)
    there = listed.mig_devices if listed.mig == "Enabled" else 0
    mode = (listed.mig or "not supported").lower()
    text = f"{there} instances, {declared} declared; MIG is {mode}"
    wrong = abs(there - declared) or float(declared == 0 and listed.mig == "Enabled")
    return _value(name, card.name, wrong, text)


def _profiles(card: Card, listed: ListedCard, said: Fact, declared: tuple[str, ...]) -> Measurement:
    name, instances = "mig_differences", mig_instances(said.value or "")
    mine = instances.get(listed.uuid or "", instances.get(str(listed.index)))
    if mine is None:
        return _unsaid(name, card, said, "profiles of MIG instances")
    there, asked = Counter(mine), Counter(declared)
    wrong = sum(((there - asked) + (asked - there)).values())
    text = f"{', '.join(mine) or 'none'}; declared {', '.join(declared)}"
    return _value(name, card.name, wrong, text)


def _links(card: Card, status: Fact, declared: int) -> Measurement:
    name = "nvlinks_lost"
    cards = parse_links(status.value or "")
    speeds = cards.get(card.index)
    if speeds is None:
        return _unsaid(name, card, status, "NVLinks")
    usual = Counter(one for each in cards.values() for one in each if one).most_common(1)
    full = usual[0][0] if usual else 0.0
    good = sum(1 for one in speeds if one is not None and one >= full)
    text = f"{good} of {declared} links up at {full:g} GB/s"
    return _value(name, card.name, max(0, declared - good), text)


def _unsaid(name: str, card: Card, answer: Fact, what: str) -> Measurement:
    detail = answer.detail or f"the driver's tool does not tell {what} of {card.name}"
    return not_measured(name, card.name, answer.reason, detail)


def _value(name: str, entity: str, value: float, detail: str) -> Measurement:
    return measured(name, entity, value, detail, source="nvidia-smi")
