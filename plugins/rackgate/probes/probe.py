"""The nouns of probes: the probe, the node it runs on, its values, and the answer of a node."""

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
    """The output has another shape than the tool's known one; the text shows the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of an output. `entity` is `gpuINDEX` or `node`, as the probed node names it.

    Without a value, `reason` and `detail` say why; `count` is the number of samples behind a value.
    """

    name: str
    entity: str
    value: float | None
    unit: str = ""
    count: int = 1
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedNode:
    """The node that a probe runs on, as parsers see it.

    `cards` are the names of all declared cards by index, also of cards that this run leaves out; `serials`
    maps serial numbers to indices. `expects` names tests that must have run, `may_skip` tests that need not.
    `ranks` is the number of cards that must take part, with those of other nodes.
    """

    name: str
    cards: Mapping[int, str] = field(default_factory=dict)
    serials: Mapping[str, int] = field(default_factory=dict)
    expects: tuple[str, ...] = ()
    may_skip: frozenset[str] = frozenset()
    ranks: int = 0

    def index_of(self, index: int, serial: str = "") -> int:
        """Return the declared index of a device; its serial decides before the tool's own `index`."""
        return self.serials.get(serial, index)

    def same_cards(self, seen: int, who: str) -> None:
        """Raise `BadOutput` unless a tool saw as many devices as are declared: they match by position."""
        if self.cards and seen != len(self.cards):
            raise BadOutput(f"{who} lists {seen} devices, the target declares {len(self.cards)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`[probe.NAME]` of the acceptance file.

    `values` maps names to units; each is a metric `probe.NAME.VALUE` of `scope`. `tool` names the parser of
    the output. Either `command` runs, or `result` names a file made elsewhere (`{node}` is filled in).
    `peer_command` starts first, on the next node. `nodes` is the number of nodes that take part: the probed
    node and those after it. `skus` limits the probe to these cards.

    `idle_cards`: the command needs idle cards. `file_output`: it writes its result to the file `{output}`.
    `status_tells`: a bad exit status is part of the result. `shares` maps a value to the value whose median
    over all entities is its denominator, `peer_shares` to the value whose best on the node is. `least_cards`
    is the number of cards that a node needs for a value. `program` must be on the PATH, by default the
    command's first word. `layer` is the layer of a bad value.
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
        """The inputs of its metrics, as `rackgate.metrics.inputs` writes them."""
        if not self.needs_host or not self.command:
            return ()
        return ("docker",) if self.where == "container" else (f"tool:{self.program or self.command[0]}",)

    @property
    def needs_host(self) -> bool:
        """Whether it needs a way into the node's host."""
        return not self.result and self.where in ("host", "container")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one node (`rack` for a probe that runs once): values, or the reason for none."""

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
        """Whether the output could be read."""
        return self.reason is None


def metric_of(probe: str, value: str) -> str:
    """`probe.NAME.VALUE`."""
    return f"{PREFIX}{probe}.{value}"


def probe_of(metric: str) -> str:
    """Return the name of the probe of a metric; "" for the metric of no probe."""
    return metric.split(".")[1] if metric.startswith(PREFIX) and metric.count(".") == 2 else ""
