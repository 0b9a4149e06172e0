"""Inspection of this machine within a few seconds: cards, services, host facts and containers at once."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rackgate.discovery.cards import cards_of_page, find_cards
from rackgate.discovery.machine import CardInventory, Container, FoundCard, Machine, Service
from rackgate.discovery.ports import parents
from rackgate.discovery.services import find_services
from rackgate.discovery.triage import triage_of
from rackgate.engines.launchers.containers.daemon import NoDaemon, choose_daemon, open_daemon
from rackgate.hosts.concurrently import within
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.host import FACTS, hung_tools, read_host
from rackgate.hosts.runner import LocalRunner, Runner
from rackgate.hosts.tools.nvidia_smi_inventory import parse_inventory
from rackgate.nouns.measurement import Reason
from rackgate.preflight.inventory import FACT_OF_PIN

_RESERVED = ("gateway", "rack", "gpu", "cpu")
_DAEMON_LIMIT_S = 3


def inspect_machine(
    runner: Runner | None = None,
    *,
    deadline_s: float = 3.0,
    environment: Mapping[str, str] | None = None,
) -> Machine:
    """Return what is on this machine.

    `runner` reads its files and runs its commands; `environment` is that of the driver library.
    """
    runner = runner or LocalRunner()
    limit_s = 2 * deadline_s
    answers = within(
        {
            "cards": partial(find_cards, runner, deadline_s, environment),
            "services": partial(find_services, runner),
            "facts": partial(read_host, runner, deadline_s),
            "containers": _find_containers if isinstance(runner, LocalRunner) else _no_containers,
        },
        limit_s,
    )
    late = f"no answer within {limit_s:g} s"
    services = answers.get("services", ())
    inventory = answers.get("cards") or CardInventory(why=f"the driver: {late}")
    inventory, notes = _completed(inventory, services)
    containers, no_daemon = answers.get("containers") or ((), late)
    notes += [f"containers: {no_daemon}"] if no_daemon else []
    facts = answers.get("facts") or dict.fromkeys(FACTS, Fact(None, Reason.TIMEOUT, late))
    return Machine(
        host=_host_name(),
        inventory=inventory,
        services=services,
        containers=containers,
        triage=triage_of(runner, facts, inventory, deadline_s),
        notes=tuple(notes),
        busy=_busy(facts, inventory),
        parents=parents(),
        versions=_versions(facts),
        hung=hung_tools(answers["facts"]) if "facts" in answers else {},
    )


def _busy(facts: Mapping[str, Fact], inventory: CardInventory) -> dict[int, frozenset[int]]:
    """Return the processes on each card, as nvidia-smi lists them."""
    listed = parse_inventory(facts["driver_answer"].value or "")
    index_of = {card.uuid: card.index for card in inventory.cards if card.uuid}
    return {
        index_of.get(card.uuid or "", card.index): frozenset(process.pid for process in card.processes or ())
        for card in (listed.cards if listed else ())
    }


def _versions(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Return the versions that a target may pin, by their keys in [expect]."""
    versions = {pin: facts[fact].value for pin, fact in FACT_OF_PIN.items() if fact in facts}
    return {pin: value for pin, value in versions.items() if value}


def _completed(inventory: CardInventory, services: tuple[Service, ...]) -> tuple[CardInventory, list[str]]:
    """Return the inventory, from an exporter's page where no driver answers, and notes about it."""
    notes = [f"cards: {lost}" for lost in inventory.lost]
    exporter = next((service for service in services if service.kind == "exporter"), None)
    if exporter is None:
        notes.append("exporter: nothing that listens here gives a dcgm-exporter page")
    elif not inventory.cards and (listed := _cards_of_exporter(exporter.url)):
        notes.append(f"cards: {inventory.why}; the exporter lists {len(listed)}")
        inventory = replace(inventory, cards=listed, source="exporter")
    return inventory, notes


def _cards_of_exporter(url: str) -> tuple[FoundCard, ...]:
    import httpx

    try:
        return cards_of_page(httpx.get(url, timeout=2.0, trust_env=False).text)
    except (httpx.HTTPError, ValueError):
        return ()


def _find_containers() -> tuple[tuple[Container, ...], str]:
    """Return the running containers of the daemon that `docker` uses, and why they cannot be listed."""
    from docker.errors import DockerException

    try:
        daemon = choose_daemon()
        if not daemon.is_local:
            return (), f"the container daemon is {daemon.address}, on another machine: not asked"
        client = open_daemon(daemon, timeout_s=_DAEMON_LIMIT_S)
    except NoDaemon as error:
        return (), str(error)
    try:
        listed = client.api.containers()
    except (DockerException, OSError) as error:
        return (), f"the container daemon does not answer: {error}"
    finally:
        client.close()
    return tuple(_container(entry) for entry in listed), ""


def _container(entry: Mapping[str, Any]) -> Container:
    names = entry.get("Names") or [entry.get("Id", "")[:12]]
    ports = {int(port["PublicPort"]) for port in entry.get("Ports") or () if port.get("PublicPort")}
    image = str(entry.get("Image", ""))
    return Container(name=str(names[0]).lstrip("/"), image=image, ports=tuple(sorted(ports)))


def _no_containers() -> tuple[tuple[Container, ...], str]:
    return (), "a folder stands in for this machine: no daemon is asked"


def _host_name() -> str:
    """Return this machine's name in the form that a target file allows."""
    short = socket.gethostname().partition(".")[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", short).strip("-_")
    return f"{name}-node" if name.lower() in _RESERVED else name or "node1"
