"""What was found on a machine, and of what was looked for in vain: why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackgate.hosts.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCard:
    """One accelerator as the driver names it; a text that it does not tell is empty.

    `links` says in words what connects it, such as `PCIe 5 x16, 18 NVLinks up`.
    """

    index: int
    name: str = ""
    uuid: str = ""
    serial: str = ""
    pci: str = ""
    links: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCards:
    """The cards, and who told: `nvml`, `nvidia-smi`, `exporter`, or empty with `why` nobody did.

    `lost` names cards that the driver counts and gives no access to.
    """

    cards: tuple[FoundCard, ...] = ()
    source: str = ""
    why: str = ""
    driver: str = ""
    cuda: str = ""
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Something that listens on this machine and was recognised.

    `kind` is `engine`, `exporter`, `prometheus` or `locked` (it wants a key before it tells what it is).
    `owner` is the command of its process where it may be seen, `visible` the cards that its environment
    gives it (None where it does not say).
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
class Box:
    """A running container: its name, image and the ports of this machine that lead to it."""

    name: str
    image: str
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the field's triage. `ok` is None where it could not be looked at."""

    name: str
    ok: bool | None
    text: str
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine. `triage` is in the field's order: device, kernel module, driver, CUDA, containers.

    `notes` say what could not be looked at, and why. `busy` are the processes on each card, by its index,
    `parents` the parent of each process of this machine, `versions` what a target may pin, `hung` the facts
    that are None because the driver's tool did not end in its time.
    """

    host: str
    found: FoundCards
    services: tuple[Service, ...] = ()
    boxes: tuple[Box, ...] = ()
    triage: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    busy: Mapping[int, frozenset[int]] = field(default_factory=dict)
    parents: Mapping[int, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    hung: Mapping[str, Fact] = field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[Service, ...]:
        """Return the services of one kind, in the order of their ports."""
        return tuple(one for one in self.services if one.kind == kind)
