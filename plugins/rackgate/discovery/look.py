"""One look at this machine, within a few seconds, side by side."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rackgate.discovery.cards import cards_of_page, find_cards
from rackgate.discovery.containers import find_boxes
from rackgate.discovery.machine import Box, FoundCard, FoundCards, Machine, Service
from rackgate.discovery.ports import parents
from rackgate.discovery.services import find_services
from rackgate.discovery.triage import triage_of
from rackgate.hosts.concurrently import within
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.host import FACTS, hung_tools, read_host
from rackgate.hosts.runner import LocalRunner, Runner
from rackgate.hosts.tools.nvidia_smi_inventory import parse_inventory
from rackgate.nouns.measurement import Reason
from rackgate.preflight.inventory import FACT_OF_PIN

_RESERVED = ("gateway", "rack", "gpu", "cpu")


def look_at_this_machine(
    runner: Runner | None = None,
    *,
    deadline_s: float = 3.0,
    environment: Mapping[str, str] | None = None,
) -> Machine:
    """Return what is here. `runner` is how files and commands are had, `environment` the driver library's."""
    asked = runner or LocalRunner()
    answers = within(
        {
            "cards": partial(find_cards, asked, deadline_s, environment),
            "services": partial(find_services, asked),
            "facts": partial(read_host, asked, deadline_s),
            "boxes": find_boxes if isinstance(asked, LocalRunner) else _no_daemon_asked,
        },
        2 * deadline_s,
    )
    late = f"no answer within {2 * deadline_s:g} s"
    services = answers.get("services", ())
    found, notes = _completed(answers.get("cards") or FoundCards(why=f"the driver: {late}"), services)
    containers, no_daemon = answers.get("boxes") or ((), late)
    hung = hung_tools(answers["facts"]) if "facts" in answers else {}
    known = answers.get("facts") or dict.fromkeys(FACTS, Fact(None, Reason.TIMEOUT, late))
    triage = triage_of(asked, known, found, deadline_s)
    notes += [f"containers: {no_daemon}"] if no_daemon else []
    return Machine(
        host=_host_name(),
        found=found,
        services=services,
        boxes=containers,
        triage=triage,
        notes=tuple(notes),
        busy=_busy(known, found),
        parents=parents(),
        versions=_versions(known),
        hung=hung,
    )


def _busy(facts: Mapping[str, Fact], found: FoundCards) -> dict[int, frozenset[int]]:
    """Return the processes on each card, as the driver's own tool names them."""
    inventory = parse_inventory(facts["driver_answer"].value or "")
    listed = inventory.cards if inventory else ()
    index_of = {card.uuid: card.index for card in found.cards if card.uuid}
    return {
        index_of.get(card.uuid or "", card.index): frozenset(one.pid for one in card.processes or ())
        for card in listed
    }


def _versions(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Return what a target may pin: by its key in [expect]."""
    told = {pin: facts[fact].value for pin, fact in FACT_OF_PIN.items() if fact in facts}
    return {pin: value for pin, value in told.items() if value}


def _no_daemon_asked() -> tuple[tuple[Box, ...], str]:
    return (), "a folder stands in for this machine: no daemon is asked"


def _completed(found: FoundCards, services: tuple[Service, ...]) -> tuple[FoundCards, list[str]]:
    """Return the cards, those of an exporter's page where no driver answers; and what is to be noted."""
    notes = [f"cards: {one}" for one in found.lost]
    pages = [one for one in services if one.kind == "exporter"]
    if not pages:
        notes.append("exporter: nothing that listens here gives a dcgm-exporter page")
        return found, notes
    if found.cards:
        return found, notes
    listed = _listed(pages[0].url)
    if listed:
        notes.append(f"cards: {found.why}; the exporter lists {len(listed)}")
        return replace(found, cards=listed, source="exporter"), notes
    return found, notes


def _listed(url: str) -> tuple[FoundCard, ...]:
    import httpx

    try:
        return cards_of_page(httpx.get(url, timeout=2.0, trust_env=False).text)
    except (httpx.HTTPError, ValueError):
        return ()


def _host_name() -> str:
    """Return this machine's name as a target may write it."""
    short = socket.gethostname().partition(".")[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", short).strip("-_")
    return f"{name}-node" if name.lower() in _RESERVED else name or "node1"
