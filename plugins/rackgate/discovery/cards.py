"""The cards of this machine: from the driver's library, nvidia-smi, or the page of an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial

from rackgate.discovery.machine import CardInventory, FoundCard
from rackgate.hosts.concurrently import within
from rackgate.hosts.pci import canonical_pci
from rackgate.hosts.runner import Command, Runner
from rackgate.hosts.tools.nvidia_smi import driver_problem, parse_query
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.cards.dcgm_exporter_page import samples_by_card
from rackgate.telemetry.cards.nvml_source import NvmlSource
from rackgate.telemetry.reading import Reading

_HERE = "here"
_MOST_CARDS = 32
_COLUMNS = ("index", "uuid", "serial", "name", "pci.bus_id", "driver_version")
_SMI = Command(argv=("nvidia-smi", f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"))


def find_cards(
    runner: Runner, deadline_s: float, environment: Mapping[str, str] | None = None
) -> CardInventory:
    """Return the cards that NVML or nvidia-smi lists, or why neither does; both are asked at once."""
    sources = {
        "NVML": partial(_by_nvml, deadline_s, environment),
        "nvidia-smi": partial(_by_smi, runner, deadline_s),
    }
    limit_s = 1.5 * deadline_s
    answers = within(sources, limit_s)
    by_library, by_command = (
        answers.get(name) or CardInventory(why=f"{name}: no answer within {limit_s:g} s") for name in sources
    )
    if by_library.cards or by_library.lost:
        return by_library
    if by_command.cards:
        return by_command
    why = "; ".join(filter(None, (by_library.why, by_command.why)))
    return CardInventory(why=why, driver=by_library.driver, cuda=by_library.cuda)


def _by_nvml(deadline_s: float, environment: Mapping[str, str] | None) -> CardInventory:
    slots = tuple(Card(name=f"{_HERE}/gpu{index}", node=_HERE, index=index) for index in range(_MOST_CARDS))
    source = NvmlSource(Node(name=_HERE, cards=slots), deadline_s=deadline_s, environment=environment)
    with closing(source):
        readings = source.poll()
    if not source.driver:
        return CardInventory(why=f"NVML: {source.problem}")
    lost = tuple(
        reading.detail
        for reading in readings
        if "gives no handle" in reading.detail and reading.field == "temperature_c"
    )
    cards = tuple(
        FoundCard(index=index, links=_links(index, readings), **_identity(facts))
        for index, facts in sorted(source.facts.items())
    )
    return CardInventory(
        cards=cards,
        source="nvml",
        why="" if cards else "NVML: the driver answers and lists no card",
        driver=source.driver.get("driver") or "",
        cuda=source.driver.get("cuda") or "",
        lost=lost,
    )


def _identity(facts: Mapping[str, str | None]) -> dict[str, str]:
    return {name: facts.get(name) or "" for name in ("name", "uuid", "serial", "pci")}


def _links(index: int, readings: list[Reading]) -> str:
    card = f"{_HERE}/gpu{index}"
    values = {reading.field: reading.value for reading in readings if reading.entity == card}
    parts = []
    width, generation = values.get("pcie_width_max"), values.get("pcie_generation_max")
    if width is not None and generation is not None:
        parts.append(f"PCIe {generation:g} x{width:g}")
    if values.get("nvlinks_up") is not None:
        parts.append(f"{values['nvlinks_up']:g} NVLinks up")
    if values.get("fabric_state") == 3:
        parts.append(f"in fabric clique {values.get('fabric_clique') or 0:g}")
    if values.get("mig_enabled"):
        parts.append("cut by MIG")
    return ", ".join(parts)


def _by_smi(runner: Runner, deadline_s: float) -> CardInventory:
    ran = runner.run(_SMI, deadline_s)
    problem = driver_problem(ran.text + ran.error)
    if problem or ran.reason is not None or ran.status:
        return CardInventory(why=f"nvidia-smi: {problem or ran.detail}")
    cards, driver = [], ""
    for row in parse_query(ran.text, _COLUMNS):
        texts = {name: cell.text for name, cell in row.cells.items() if cell.supported and not cell.fault}
        index = row.number("index")
        if index is None:
            continue
        driver = driver or texts.get("driver_version", "")
        cards.append(
            FoundCard(
                index=int(index),
                name=texts.get("name", ""),
                uuid=texts.get("uuid", ""),
                serial=texts.get("serial", ""),
                pci=canonical_pci(texts.get("pci.bus_id", "")) or "",
            )
        )
    why = "" if cards else "nvidia-smi lists no card"
    return CardInventory(cards=tuple(cards), source="nvidia-smi" if cards else "", why=why, driver=driver)


def cards_of_page(text: str) -> tuple[FoundCard, ...]:
    """Return the cards on the page of a dcgm-exporter; raises `ValueError` for another page."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [
        (sample.labels, sample.name, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    found = []
    for page in samples_by_card(samples).values():
        if page.index is None or not page.index.isdigit():
            continue
        uuid = page.identity if page.identity.startswith("GPU-") else ""
        found.append(FoundCard(index=int(page.index), name=page.model or "", uuid=uuid))
    return tuple(sorted(found, key=lambda card: card.index))
