"""Reader of exporter pages (dcgm-exporter, AMD's): readings; a blank or absent value has its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from rackgate.hosts.pci import canonical_pci
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.cards.amd_names import AMD_NAMES, amd_name, clock_event_mask, pcie_generation
from rackgate.telemetry.cards.dcgm_names import NAMES
from rackgate.telemetry.reading import REQUIRED, Reading

_UNKNOWN_STATE = 32.0  # NVML_PSTATE_UNKNOWN, as it came

# DCGM's blank values start here and count up: blank, not found, not supported, no permission. Exporters
# print them as they are, rounded to a double, or times 100 where they show a ratio in percent.
_BLANKS = (
    (0x7FFFFFF0, 0x7FFFFFFF),
    (0x7FFFFFFFFFFFFFF0, 2**63),  # 2**63 is what the others round to as a double
    (2.0**47, 2.0**47 + 3),
    (2.0**47 * 100, (2.0**47 + 3) * 100),
)
_NO_PERMISSION = frozenset({0x7FFFFFF3, 0x7FFFFFFFFFFFFFF3, 2**47 + 3})

_ALIASES = {
    "uuid": ("UUID", "uuid", "gpu_uuid", "exported_UUID", "exported_uuid"),
    "index": ("gpu", "GPU", "gpu_index", "exported_gpu", "gpu_id"),
    "host": ("Hostname", "hostname", "exported_Hostname", "exported_hostname", "node"),
    "model": ("modelName", "model_name", "exported_modelName", "card_model"),
    "pci": ("pci_bus_id", "PCI_BUS_ID", "exported_pci_bus_id"),
    "link": ("nvlink", "link", "port"),
    "instance": ("GPU_I_ID", "gpu_i_id", "exported_GPU_I_ID"),
    "serial": ("DCGM_FI_DEV_SERIAL", "serial", "serial_number"),
    "vbios": ("DCGM_FI_DEV_VBIOS_VERSION", "vbios_version"),
}


@dataclass(slots=True)
class CardPage:
    """What a page says of one card: values by the exporter's names, and where series contradict."""

    identity: str
    index: str | None = None
    host: str | None = None
    model: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    links: dict[tuple[str, str], float] = field(default_factory=dict)
    samples: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    contradictions: dict[str, tuple[float, float]] = field(default_factory=dict)


def is_blank(value: float) -> bool:
    """Return whether a number is one of DCGM's sentinels (int32, int64, fp64, x 100) or no number."""
    return not math.isfinite(value) or any(low <= value <= high for low, high in _BLANKS)


def card_label(labels: Mapping[str, str], what: str) -> str | None:
    """Return a label of a series under any of the names that exporters and Prometheus give it."""
    return next((labels[name] for name in _ALIASES[what] if labels.get(name)), None)


def samples_by_card(samples: Iterable[tuple[Mapping[str, str], str, float]]) -> dict[str, CardPage]:
    """Return what is said of each card, by UUID, else by index.

    Several series of one card (per pod, process or MIG instance) are one value: equal repeats collapse,
    differing ones are kept as contradictions and give no value.
    """
    pages: dict[str, CardPage] = {}
    for labels, name, value in samples:
        uuid, index = card_label(labels, "uuid"), card_label(labels, "index")
        identity = uuid or index
        if identity is None:
            continue
        page = pages.setdefault(identity, CardPage(identity, index=index))
        page.samples += 1
        page.labels = page.labels or labels
        page.host = page.host or card_label(labels, "host")
        page.model = page.model or card_label(labels, "model")
        link, of_amd = card_label(labels, "link"), amd_name(name, labels)
        if of_amd is not None:
            if not is_blank(value):  # of several engines of a card the busiest
                page.values[of_amd] = max(value, page.values.get(of_amd, value))
        elif link is not None:
            page.links[name, link] = value
        else:
            _add(page, name, value, of_instance=card_label(labels, "instance") is not None)
    return pages


def _add(page: CardPage, name: str, value: float, *, of_instance: bool) -> None:
    known = page.values.get(name)
    if known is None or (is_blank(known) and not is_blank(value)):
        page.values[name] = value
    elif not of_instance and not is_blank(value) and not math.isclose(known, value, rel_tol=1e-3):
        page.contradictions[name] = (known, value)


def parse_page(text: str, node: Node, t_ns: int) -> list[Reading]:
    """Return the readings of each declared card; raises ValueError if the text is not a page."""
    return readings_of(pages_of(text), node, t_ns, "the exporter")


def readings_of(pages: Mapping[str, CardPage], node: Node, t_ns: int, who: str) -> list[Reading]:
    """Return what pages say of the cards of a node; required fields that they lack have a reason."""
    readings: list[Reading] = []
    for card in node.cards:
        page = _page_of(card, pages)
        if page is None:
            detail = f"{who} lists no series of this card"
            readings += [
                Reading(t_ns, node.name, card.name, one, None, Reason.ABSENT, detail) for one in REQUIRED
            ]
            continue
        found = _card_readings(page, card.name, node.name, t_ns)
        said = {one.field for one in found}
        readings += found
        readings += [
            Reading(t_ns, node.name, card.name, one, None, Reason.ABSENT, f"{who} has no such series")
            for one in REQUIRED
            if one not in said
        ]
    return readings


def listed_cards(pages: Mapping[str, CardPage]) -> tuple[ListedCard, ...]:
    """Return what a page's labels say of each card that it lists, declared or not."""
    return tuple(
        ListedCard(
            index=int(page.index) if page.index and page.index.isdigit() else place,
            pci=canonical_pci(card_label(page.labels, "pci") or ""),
            uuid=page.identity if page.identity != page.index else None,
            serial=card_label(page.labels, "serial"),
            vbios=card_label(page.labels, "vbios"),
            name=page.model,
        )
        for place, page in enumerate(pages.values())
    )


def pages_of(text: str) -> dict[str, CardPage]:
    """Return what an exporter's text says of each card; raises ValueError if it is no page."""
    return samples_by_card(_samples(text))


def _card_readings(page: CardPage, entity: str, node: str, t_ns: int) -> list[Reading]:
    found: dict[str, Reading] = {}
    for name, value in page.values.items():
        if name not in NAMES:
            continue
        our_name, factor = NAMES[name]
        reading = _reading(page, name, value * (1.0 if is_blank(value) else factor))
        known = found.get(our_name)
        if known is None or known.value is None:
            found[our_name] = Reading(t_ns, node, entity, our_name, *reading)
    found |= {
        name: one
        for name, one in _of_links(page, entity, node, t_ns).items()
        if name not in found or found[name].value is None
    }
    found |= _of_amd(page, entity, node, t_ns)
    return list(found.values())


def _of_links(page: CardPage, entity: str, node: str, t_ns: int) -> dict[str, Reading]:
    """Return the sum over all links of what an exporter tells of each; of a blank one nothing is known."""
    by_name: dict[str, list[float]] = {}
    for (name, _), value in page.links.items():
        by_name.setdefault(name, []).append(value)
    found = {}
    for name, values in by_name.items():
        if name not in NAMES:
            continue
        our_name, factor = NAMES[name]
        blank = [value for value in values if is_blank(value)]
        total = None if blank else sum(values) * factor
        reason = Reason.BLANK if blank else None
        detail = f"{name} of {len(blank)} of {len(values)} links is DCGM's blank" if blank else ""
        found[our_name] = Reading(t_ns, node, entity, our_name, total, reason, detail)
    return found


def _of_amd(page: CardPage, entity: str, node: str, t_ns: int) -> dict[str, Reading]:
    """Return the readings of a card of AMD's, of another nothing."""
    values: dict[str, float | None] = {}
    for name, (our_name, factor) in AMD_NAMES.items():
        if name in page.values and our_name not in values:
            values[our_name] = page.values[name] * factor
    for name, our_name in (("pcie_speed", "pcie_generation"), ("pcie_max_speed", "pcie_generation_max")):
        if name in page.values:
            values[our_name] = pcie_generation(page.values[name])
    values["clock_event_reasons"] = clock_event_mask(page.values)
    return {
        name: Reading(t_ns, node, entity, name, value) for name, value in values.items() if value is not None
    }


def _reading(page: CardPage, name: str, value: float) -> tuple[float | None, Reason | None, str]:
    if name in page.contradictions:
        first, second = page.contradictions[name]
        return None, Reason.INSTRUMENT, f"series of {name} contradict each other: {first:g} and {second:g}"
    if NAMES[name][0] == "performance_state" and value == _UNKNOWN_STATE:
        return None, Reason.BLANK, f"{name} is {value:.0f}: the driver does not know it"
    if is_blank(value):
        denied = value in _NO_PERMISSION
        reason = Reason.NO_PERMISSION if denied else Reason.BLANK
        return None, reason, f"{name} is {value:.0f}, DCGM's blank"
    return value, None, ""


def _samples(text: str) -> Iterator[tuple[dict[str, str], str, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.labels, re.sub("(_total|_TOTAL)+$", "", sample.name), sample.value


def _page_of(card: Card, pages: Mapping[str, CardPage]) -> CardPage | None:
    if card.uuid and card.uuid in pages:
        return pages[card.uuid]
    with_index = [page for page in pages.values() if page.index == str(card.index)]
    # A declared UUID that is not there is a lost or exchanged card, whoever has its index now.
    return next((page for page in with_index if not (card.uuid and page.identity != page.index)), None)
