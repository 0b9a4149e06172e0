"""Reader of `nvidia-smi -q -x`: driver, cards, and the processes that hold them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from rackgate.hosts.pci import canonical_pci
from rackgate.nouns.node import Card

_NOTHING = frozenset({"", "n/a", "[n/a]", "none", "requested functionality has been deprecated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProcess:
    """A process that holds a card; `kind` is `C` (compute), `G` (graphics) or `C+G`."""

    pid: int
    kind: str
    name: str
    memory_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCard:
    """One card; None is what the driver does not say of it.

    `processes` is None where the driver gave no list, which is not the same as an empty one.
    `recovery_action` is the driver's word, "none" for nothing to do.
    """

    pci: str | None
    index: int
    uuid: str | None = None
    serial: str | None = None
    name: str | None = None
    part: str | None = None
    vbios: str | None = None
    persistence: str | None = None
    compute_mode: str | None = None
    ecc: str | None = None
    mig: str | None = None
    mig_devices: int = 0
    recovery_action: str | None = None
    fabric_state: str | None = None
    fabric_domain: str | None = None
    memory_used_mib: float | None = None
    sram_uncorrectable: float | None = None
    processes: tuple[CardProcess, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What one node's driver says of itself and its cards."""

    driver: str | None
    cuda: str | None
    cards: tuple[ListedCard, ...]


def parse_inventory(text: str) -> Inventory | None:
    """Return the inventory of the XML; None if the text is none, whatever else it is."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - said by the driver's own tool on a declared node
    except ET.ParseError:
        return None
    if root.tag != "nvidia_smi_log":
        return None
    cards = tuple(_card(element, index) for index, element in enumerate(root.iter("gpu")))
    return Inventory(driver=_text(root, "driver_version"), cuda=_text(root, "cuda_version"), cards=cards)


def listed_as(card: Card, listed: Sequence[ListedCard]) -> ListedCard | None:
    """Return how a declared card is listed: by its PCI address, else its UUID, else its place."""
    for name in ("pci", "uuid"):
        known = getattr(card, name)
        if known is not None:
            return next((one for one in listed if getattr(one, name) == known), None)
    return next((one for one in listed if one.index == card.index), None)


def parse_links(text: str) -> dict[int, tuple[float | None, ...]]:
    """Return the speed of each NVLink in GB/s by the card's index, of `nvidia-smi nvlink --status`.

    None is a link that is not active. A card of which no link is listed has none.
    """
    found: dict[int, list[float | None]] = {}
    links: list[float | None] = []
    for line in text.splitlines():
        head = re.match(r"GPU (\d+):", line)
        if head is not None:
            links = found.setdefault(int(head[1]), [])
            continue
        link = re.match(r"\s*Link \d+:\s*(?:([\d.]+) GB/s|<inactive>)", line)
        if link is not None:
            links.append(float(link[1]) if link[1] else None)
    return {index: tuple(speeds) for index, speeds in found.items()}


def mig_instances(text: str) -> dict[str, tuple[str, ...]]:
    """Return the profile of each MIG instance by the card's UUID and by its index, of `nvidia-smi -L`."""
    found: dict[str, tuple[str, ...]] = {}
    names: tuple[str, ...] = ()
    for line in text.splitlines():
        head = re.match(r"GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)", line)
        if head is not None:
            names = head.groups()
            found |= dict.fromkeys(names, ())
        instance = re.match(r"\s+MIG (\S+)\s+Device", line)
        if instance is not None:
            found |= {name: (*found[name], instance[1]) for name in names}
    return found


def _card(element: ET.Element, index: int) -> ListedCard:
    action = element.findtext("gpu_recovery_action")
    return ListedCard(
        pci=canonical_pci(element.get("id", "")),
        index=index,
        uuid=_text(element, "uuid"),
        serial=_text(element, "serial"),
        name=_text(element, "product_name"),
        part=_text(element, "gpu_part_number") or _text(element, "board_part_number"),
        vbios=_text(element, "vbios_version"),
        persistence=_text(element, "persistence_mode"),
        compute_mode=_text(element, "compute_mode"),
        ecc=_text(element, "ecc_mode/current_ecc"),
        mig=_text(element, "mig_mode/current_mig"),
        mig_devices=len(element.findall("mig_devices/mig_device")),
        recovery_action=action.strip().lower() if action and action.strip().lower() != "n/a" else None,
        fabric_state=_text(element, "fabric/state"),
        fabric_domain=_domain(element),
        memory_used_mib=_number(element.findtext("fb_memory_usage/used")),
        sram_uncorrectable=_sram(element),
        processes=_processes(element),
    )


def _processes(element: ET.Element) -> tuple[CardProcess, ...] | None:
    listed = element.find("processes")
    if listed is None or (not len(listed) and (listed.text or "").strip().lower() == "n/a"):
        return None
    return tuple(
        CardProcess(
            pid=int(_number(one.findtext("pid")) or 0),
            kind=_text(one, "type") or "C",
            name=_text(one, "process_name") or "?",
            memory_mib=_number(one.findtext("used_memory")),
        )
        for one in listed.iter("process_info")
    )


def _sram(element: ET.Element) -> float | None:
    names = ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "sram_uncorrectable")
    found = [_number(element.findtext(f"ecc_errors/aggregate/{name}")) for name in names]
    known = [one for one in found if one is not None]
    return sum(known) if known else None


def _domain(element: ET.Element) -> str | None:
    """Return cluster UUID and clique; a card that is in no domain has a UUID of zeros."""
    cluster, clique = _text(element, "fabric/clusterUuid"), _text(element, "fabric/cliqueId")
    return f"{cluster}/{clique}" if cluster and cluster.strip("0-") and clique else None


def _text(element: ET.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text.lower() in _NOTHING else text


def _number(text: str | None) -> float | None:
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text or "")
    return float(found[1]) if found else None
