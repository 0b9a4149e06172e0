"""The nouns of an inspected machine: cards, services, containers and triage steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackgate.hosts.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCard:
    """An accelerator as the driver names it; a text that the driver does not give is empty.

    `links` describes its connections, such as `PCIe 5 x16, 18 NVLinks up`.
    """

    index: int
    name: str = ""
    uuid: str = ""
    serial: str = ""
    pci: str = ""
    links: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardInventory:
    """The cards and their source: `nvml`, `nvidia-smi`, `exporter`, or "" with `why` there is none.

    `lost` describes the cards that the driver counts but gives no access to.
    """

    cards: tuple[FoundCard, ...] = ()
    source: str = ""
    why: str = ""
    driver: str = ""
    cuda: str = ""
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A recognised server that listens on this machine.

    `kind` is `engine`, `exporter`, `prometheus` or `locked` (it wants a key before it lists models).
    `owner` is the command of its process where this user may read it, `visible` the cards in the environment
    of the process (None where it names none).
    """

    kind: str
    port: int
    url: str
    models: tuple[str, ...] = ()
    protocol: str = "openai"
    owner: str = ""
    pid: int | None = None
    visible: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A running container with the ports of this machine that are published to it."""

    name: str
    image: str
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageStep:
    """One step of the triage of a machine without cards. `ok` is None where it could not be inspected."""

    name: str
    ok: bool | None
    text: str
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine. `triage` goes in the order device, kernel module, driver, CUDA, containers.

    `notes` are the reasons for what could not be inspected. `busy` holds the processes on each card by its
    index, `parents` the parent of each process, `versions` the versions that a target may pin, and `hung` the
    facts that are missing because the driver's tool did not end in time.
    """

    host: str
    inventory: CardInventory
    services: tuple[Service, ...] = ()
    containers: tuple[Container, ...] = ()
    triage: tuple[TriageStep, ...] = ()
    notes: tuple[str, ...] = ()
    busy: Mapping[int, frozenset[int]] = field(default_factory=dict)
    parents: Mapping[int, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    hung: Mapping[str, Fact] = field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[Service, ...]:
        """Return the services of one kind, in the order of their ports."""
        return tuple(service for service in self.services if service.kind == kind)
