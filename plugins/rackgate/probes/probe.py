"""A probe: a program of others, where it is asked, and what its output says of which entity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Scope

PREFIX = "probe."

PLACES = ("host", "container", "srun", "here")
"""Where a command runs: on the node, in a container there, through Slurm, or once on this machine."""


class BadOutput(Exception):
    """The output is not what the tool is known to print; the text says what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of an output. `entity` is `gpuINDEX` or `node`, seen from the node that was asked.

    Without a value, `reason` and `detail` say why; `count` is the number of things behind a value.
    """

    name: str
    entity: str
    value: float | None
    unit: str = ""
    count: int = 1
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a parser may know of the node that was asked.

    `cards` are the names of all its declared cards by index, also of those that this run leaves out;
    `serials` maps serial numbers to indices; `expects` names tests that must have run, `may_skip` such
    that need not. `ranks` is how many cards must have taken part, those of other nodes among them.
    """

    node: str
    cards: Mapping[int, str] = field(default_factory=dict)
    serials: Mapping[str, int] = field(default_factory=dict)
    expects: tuple[str, ...] = ()
    may_skip: frozenset[str] = frozenset()
    ranks: int = 0

    def index_of(self, index: int, serial: str = "") -> int:
        """Return the declared index of a device that a tool numbers `index`; its serial counts more."""
        return self.serials.get(serial, index)

    def same_cards(self, seen: int, who: str) -> None:
        """Raise `BadOutput` unless a tool saw as many devices as are declared: else none is told apart."""
        if self.cards and seen != len(self.cards):
            raise BadOutput(f"{who} lists {seen} devices, the target declares {len(self.cards)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`[probe.NAME]` of the acceptance file.

    `values` maps names to units; each is a metric `probe.NAME.VALUE` of `scope`. `tool` names who reads
    the output. Either `command` is run, or `result` names a file made elsewhere (`{node}` is filled in).
    `idle_cards` says that the command wants the cards for itself; `file_output` that it writes its result
    to the file `{output}`; `status_tells` that a bad exit status is part of the result. `peer_command` is
    started on the next node first. `shares` maps a value to the one of whose median over all that were
    asked it is the share, `peer_shares` to the one of whose best on its node it is. `nodes` is how many
    nodes take part, the one that is asked and those that follow it; `skus` are the only cards that it is
    about, if any are named. `least_cards` is how many cards a node needs for a value; `program` is what must
    be on the PATH, where that is not the command's first word; `layer` is where a bad value lives.
    """

    name: str
    tool: str
    scope: Scope
    values: Mapping[str, str]
    definitions: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)
    peer_shares: Mapping[str, str] = field(default_factory=dict)
    least_cards: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 1
    skus: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    peer_command: tuple[str, ...] = ()
    where: str = "host"
    image: str = ""
    options: tuple[str, ...] = ()
    vendor: str = ""
    deadline_s: float = 600.0
    silence_s: float | None = None
    idle_cards: bool = False
    file_output: bool = False
    status_tells: bool = False
    expects: tuple[str, ...] = ()
    may_skip: tuple[str, ...] = ()
    result: str = ""
    made_at: datetime | None = None
    max_age_s: float = 86400.0
    install: str = ""
    program: str = ""
    layer: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """What its metrics are made from, in the words of `rackgate.metrics.inputs`."""
        if not self.needs_host or not self.command:
            return ()
        return ("docker",) if self.where == "container" else (f"tool:{self.program or self.command[0]}",)

    @property
    def needs_host(self) -> bool:
        """Whether the target must give a way into the node's host."""
        return not self.result and self.where in ("host", "container")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking one node (`rack` for a probe that runs once): values, or why there are none."""

    node: str
    command: str
    values: tuple[Value, ...] = ()
    reason: Reason | None = None
    detail: str = ""
    status: int | None = None
    duration_s: float = 0.0
    text: str = ""
    errors: str = ""
    result: str = ""
    asked: bool = True
    hint: str = ""

    @property
    def answered(self) -> bool:
        """Whether the program said anything that could be read."""
        return self.reason is None


def metric_of(probe: str, value: str) -> str:
    """`probe.NAME.VALUE`."""
    return f"{PREFIX}{probe}.{value}"


def probe_of(metric: str) -> str:
    """Return the probe's name of a metric's; empty for a metric that is no probe's."""
    return metric.split(".")[1] if metric.startswith(PREFIX) and metric.count(".") == 2 else ""
