"""Inventory against the order: cards, pinned versions, and processes that hold a card."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatch

from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.node_differences import image_digests
from rackgate.hosts.tools.nvidia_smi_inventory import CardProcess, ListedCard, listed_as, parse_inventory
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.nouns.node import Card, Node
from rackgate.preflight.host_metrics import measured, not_measured

FACT_OF_PIN = {
    "driver": "driver_module",
    "cuda": "cuda",
    "kernel": "kernel",
    "os": "os",
    "fabric_manager": "fabric_manager_version",
    "container_toolkit": "container_toolkit",
    "nic_firmware": "nic_firmware",
}
"""By pin of a target: the host fact that it is compared with."""

_OF_CARDS = ("vbios", "part")


def probe_listing(node: Node, listed: Sequence[ListedCard] | None, why: tuple[Reason, str]) -> ProbeResults:
    """Return undeclared cards and identity differences; `why` is the reason if nothing is `listed`."""
    name = "undeclared_cards"
    if listed is None:
        nothing = [(name, node.name), *(("identity_differences", card.name) for card in node.cards)]
        return {(metric, entity): not_measured(metric, entity, *why) for metric, entity in nothing}
    foreign = [_words(one) for one in listed if not any(_is(card, one) for card in node.cards)]
    found = {(name, node.name): measured(name, node.name, len(foreign), "; ".join(foreign))}
    for card in node.cards:
        one = next((one for one in listed if _is(card, one)), None)
        found["identity_differences", card.name] = _identity(card, one)
    return found


def _identity(card: Card, listed: ListedCard | None) -> Measurement:
    name = "identity_differences"
    if listed is None:
        return not_measured(name, card.name, Reason.ABSENT, "the node's source does not list this card")
    names = (*(("uuid",) if listed.uuid else ()), "serial", "pci", "sku")
    declared = {what: getattr(card, what) for what in names if getattr(card, what)}
    if not declared:
        text = "the target gives neither serial, PCI address, UUID nor SKU of this card"
        return not_measured(name, card.name, Reason.NOT_CONFIGURED, text)
    seen = {what: listed.name if what == "sku" else getattr(listed, what) for what in declared}
    words = [
        f"{'name' if what == 'sku' else what} {seen[what]}, declared {value}"
        for what, value in declared.items()
        if seen[what] is not None and not _agrees(what, value, str(seen[what]))
    ]
    unread = [what for what, value in seen.items() if value is None]
    if unread and not words:
        text = f"the node's source does not say {', '.join(unread)}"
        return not_measured(name, card.name, Reason.ABSENT, text)
    return measured(name, card.name, len(words), "; ".join(words))


def _agrees(what: str, declared: str, seen: str) -> bool:
    """Return whether a fact is as declared; a SKU is when its number stands in the card's name as a word.

    `H100-SXM` agrees with `NVIDIA H100 80GB HBM3`, `B200` does not with `NVIDIA GB200`.
    """
    if what != "sku":
        return declared == seen
    asked, told = (re.findall(r"[A-Z0-9]+", text.upper()) for text in (declared, seen))
    number = next((word for word in asked if any(letter.isdigit() for letter in word)), None)
    return number in told if number else bool(set(asked) & set(told))


def _is(card: Card, listed: ListedCard) -> bool:
    if card.uuid and listed.uuid:
        return card.uuid == listed.uuid
    return card.index == listed.index


def _words(listed: ListedCard) -> str:
    known = (f"{what} {value}" for what, value in (("uuid", listed.uuid), ("serial", listed.serial)) if value)
    return f"card {listed.index} ({', '.join((*known, listed.pci or 'address unknown'))})"


def probe_pins(node: Node, facts: Mapping[str, Fact], firmware: Mapping[str, str | None]) -> ProbeResults:
    """Return the number of pinned facts that differ; no value if none does and a fact was unread.

    `firmware` holds the controller's versions by the ids that the target pins, None if not read.
    """
    name, pinned = "pins_differing", node.expect.pins
    seen: list[tuple[str, str, str | None]] = [
        (pin, value, facts[FACT_OF_PIN[pin]].value) for pin, value in pinned.items() if pin in FACT_OF_PIN
    ]
    inventory = parse_inventory(facts["driver_answer"].value or "")
    for pin in (pin for pin in _OF_CARDS if pin in pinned):
        for card in node.cards:
            one = listed_as(card, inventory.cards) if inventory else None
            seen.append((f"{pin} of {card.name}", pinned[pin], getattr(one, pin) if one else None))
    seen += [(f"firmware {id_}", value, firmware.get(id_)) for id_, value in node.expect.firmware.items()]
    digests = image_digests(facts["images"].value or "")
    for image, wanted in node.expect.images.items():
        known = digests.get(image, ())
        seen.append((f"image {image}", wanted, wanted if wanted in known else next(iter(known), None)))
    if not seen:
        return {}
    different = [
        f"{what} {value}, pinned {wanted}" for what, wanted, value in seen if value not in (None, wanted)
    ]
    unread = [what for what, _, value in seen if value is None]
    if unread and not different:
        text = f"not read: {', '.join(unread)}"
        return {(name, node.name): not_measured(name, node.name, Reason.ABSENT, text)}
    return {(name, node.name): measured(name, node.name, len(different), "; ".join(different))}


def probe_holders(node: Node, answer: Fact, own_groups: Collection[int] = ()) -> ProbeResults:
    """Return which processes hold each card, and memory that none of them owns.

    `answer` is what `nvidia-smi -q -x` said; `own_groups` are process groups of this run's engines,
    which counts on this machine only. Nothing is ever ended.
    """
    found: ProbeResults = {}
    inventory = parse_inventory(answer.value or "")
    for card in node.cards:
        one = listed_as(card, inventory.cards) if inventory else None
        if one is None or one.processes is None:
            detail = answer.detail or f"`nvidia-smi -q -x` lists no processes of {card.name}"
            for name in ("foreign_processes", "unowned_memory_mib"):
                found[name, card.name] = not_measured(name, card.name, answer.reason, detail)
            continue
        groups = own_groups if node.access.local else ()
        foreign = [held for held in one.processes if _is_foreign(held, node.expect.processes, groups)]
        text = "; ".join(f"pid {held.pid} {held.name} holds {_mib(held.memory_mib)}" for held in foreign)
        name = "foreign_processes"
        found[name, card.name] = measured(name, card.name, len(foreign), text)
        found["unowned_memory_mib", card.name] = _unowned(card.name, one, one.processes)
    return found


def _unowned(card: str, listed: ListedCard, processes: Iterable[CardProcess]) -> Measurement:
    name, held = "unowned_memory_mib", [one.memory_mib for one in processes]
    known = [one for one in held if one is not None]
    used = listed.memory_used_mib
    if used is None or len(known) < len(held):
        text = "the driver does not say how much memory each process holds"
        return not_measured(name, card, Reason.UNSUPPORTED, text)
    value = max(0.0, used - sum(known))
    text = f"{used:.0f} MiB are in use, {len(held)} processes hold {sum(known):.0f} MiB"
    return measured(name, card, value, text, source="nvidia-smi")


def _is_foreign(held: CardProcess, expected: Sequence[str], own_groups: Collection[int]) -> bool:
    if "C" not in held.kind:
        return False  # graphics of a display server is no load
    program = os.path.basename(held.name.split(" ")[0])  # noqa: PTH119 - another machine's path
    if any(fnmatch(held.name, one) or fnmatch(program, one) for one in expected):
        return False
    try:
        return not own_groups or os.getpgid(held.pid) not in own_groups
    except ProcessLookupError:
        return True


def _mib(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.0f} MiB"
