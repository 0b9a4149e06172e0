"""Comparison of facts that should be the same on all nodes: outliers and splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard, parse_inventory
from rackgate.nouns.measurement import Reason

COMPARED = (
    *("kernel", "os", "driver_module", "driver_library", "nvidia_loaded", "nouveau_loaded"),
    *("peermem_loaded", "dkms", "secure_boot", "fabric_manager", "persistence_daemon", "imex"),
    *("docker_runtimes", "docker_config", "cdi", "hugepages", "memlock_bytes", "shm_bytes"),
    *("cuda", "fabric_manager_version", "container_toolkit", "module_signer", "acs_bridges"),
    *("nic_firmware", "partitions", "nvswitches", "nvme_drives"),
)
"""Facts of a host that should be the same on all nodes, as they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A node that differs from most others in one fact."""

    node: str
    fact: str
    value: str
    others: str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A fact in which nodes differ and no value is that of most: `values` has the nodes of each."""

    fact: str
    values: Mapping[str, tuple[str, ...]]


def compared_facts(
    known: Mapping[str, Fact], firmware: Mapping[str, str], images: Iterable[str]
) -> dict[str, Fact]:
    """Return the comparable facts of a node by name: of the host, its cards, controller and images.

    `firmware` holds the controller's versions by its ids, `images` the names of the target's images.
    """
    inventory = parse_inventory(known["driver_answer"].value or "")
    cards = inventory.cards if inventory else ()
    digests = image_digests(known["images"].value or "")
    return {
        **{name: known[name] for name in COMPARED},
        "card_vbios": _of_cards("vbios", cards, known["driver_answer"]),
        "card_part": _of_cards("part", cards, known["driver_answer"]),
        "infiniband_rates": _rates(known["infiniband"]),
        **{f"firmware {name}": Fact(version) for name, version in firmware.items()},
        **{f"image {name}": _image(name, digests, known["images"]) for name in images},
    }


def image_digests(text: str) -> dict[str, tuple[str, ...]]:
    """Return what each image of `docker images` is: its registry's digest if it has one, and its own id."""
    rows = [line.split() for line in text.splitlines()]
    return {
        row[0]: tuple(one for one in row[1:] if one.startswith("sha256:")) for row in rows if len(row) == 3
    }


def _image(name: str, digests: Mapping[str, tuple[str, ...]], listed: Fact) -> Fact:
    known = digests.get(name) or digests.get(f"{name}:latest")
    if known:
        return Fact(known[0])
    why = (listed.reason, listed.detail) if listed.value is None else (Reason.ABSENT, "no such image here")
    return Fact(None, *why)


def _of_cards(name: str, cards: Iterable[ListedCard], answer: Fact) -> Fact:
    values = sorted({value for value in (getattr(card, name) for card in cards) if value})
    if values:
        return Fact(", ".join(values))
    return Fact(None, answer.reason or Reason.ABSENT, answer.detail or f"the driver tells no {name}")


def _rates(ports: Fact) -> Fact:
    if ports.value is None:
        return ports
    rates = Counter(re.findall(r": \w+ (\d+) Gb", ports.value))
    return Fact(", ".join(f"{count} x {rate} Gbit/s" for rate, count in sorted(rates.items())) or "none")


def outliers(nodes: Mapping[str, Mapping[str, Fact]]) -> tuple[Outlier, ...]:
    """Return each node whose fact differs from that of most nodes; without a majority there is no outlier.

    Unread facts are not compared.
    """
    found = []
    for name, known in _known(nodes):
        usual, count = Counter(known.values()).most_common(1)[0]
        if 2 * count > len(known):
            found += [
                Outlier(node=node, fact=name, value=value, others=usual, share=f"{count} of {len(known)}")
                for node, value in known.items()
                if value != usual
            ]
    return tuple(found)


def splits(nodes: Mapping[str, Mapping[str, Fact]]) -> tuple[Split, ...]:
    """Return each fact in which nodes differ and no value is that of more than half."""
    found = []
    for name, known in _known(nodes):
        counted = Counter(known.values())
        if len(counted) > 1 and 2 * counted.most_common(1)[0][1] <= len(known):
            by_value = {
                value: tuple(node for node, mine in known.items() if mine == value) for value in counted
            }
            found.append(Split(fact=name, values=by_value))
    return tuple(found)


def _known(nodes: Mapping[str, Mapping[str, Fact]]) -> list[tuple[str, dict[str, str]]]:
    """Return the values by node of each fact that at least two nodes have."""
    names = dict.fromkeys(name for facts in nodes.values() for name in facts)
    found = []
    for name in names:
        values = {node: facts[name].value for node, facts in nodes.items() if name in facts}
        known = {node: value for node, value in values.items() if value is not None}
        if len(known) > 1:
            found.append((name, known))
    return found
