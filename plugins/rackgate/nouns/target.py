"""The rack: its nodes, engines, gateway, prices and what may be broken. Facts only, never flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rackgate.nouns.node import Card, Node
from rackgate.nouns.route import DIRECT, Route

GRADES = ("simulated", "unproven", "cpu", "accelerator")
"""What evidence can be worth, the least first."""

GATEWAY = "gateway"
"""The entity that the target's gateway is; no engine has this name."""


def reaches(called: Collection[str], engine: str) -> bool:
    """Return whether a load on these entities reaches an engine; a gateway reaches all of them."""
    return engine in called or GATEWAY in called


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A part of an engine on one node: the cards it occupies and the role it plays there."""

    node: str
    cards: tuple[str, ...] = ()
    role: str = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An inference server as the target declares it: what it is and how it is had.

    `launcher` is a registered name (`remote`, `process`, `container`, `kubernetes`, or a plugin's), or
    `simulated` where the run makes the rack itself; `settings` is that launcher's own table. `metrics` is
    where it tells its counters: a path, `:PORT/PATH`, a whole address, "" for nowhere, None for what its
    kind usually has. `api_key_env` names the environment variable that holds the key. `offers` names what
    its API can beyond chat: `completions`, `structured_output`, `tool_calls`. `served_by` holds what it is
    called in answers, by the gateway's header or as their `system_fingerprint`, beside its name and URL.
    """

    name: str
    launcher: str
    model: str
    protocol: str = "openai"
    pool: str = "gpu"
    url: str | None = None
    api_key_env: str | None = None
    metrics: str | None = None
    offers: tuple[str, ...] = ()
    served_by: tuple[str, ...] = ()
    route: Route = DIRECT
    members: tuple[Member, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def cards(self) -> tuple[str, ...]:
        """Names of all cards that the engine occupies."""
        return tuple(card for member in self.members for card in member.cards)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes that the engine runs on, in order, each once."""
        return tuple(dict.fromkeys(member.node for member in self.members))

    @property
    def runs_already(self) -> bool:
        """Whether it runs before a run begins; the simulated rack comes up whole."""
        return self.launcher in ("remote", "simulated")

    @property
    def title(self) -> str:
        """Its name in messages; a gateway that a run starts is a spec too."""
        return self.name if self.name == GATEWAY else f"engine {self.name}"

    @property
    def entity(self) -> str:
        """The card's name for an engine of exactly one card, else the engine's own."""
        return self.cards[0] if len(self.cards) == 1 else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The address users call. `served_by_header` names the response header that says who answered.

    It is found at `url`, or started by the launcher of that name, after the engines; `settings` is that
    launcher's own table, whose words may name the engines (engines.gateway_backends).
    """

    url: str | None = None
    api_key_env: str | None = None
    served_by_header: str = "x-served-by"
    route: Route = DIRECT
    launcher: str = "remote"
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def started(self) -> bool:
        """Whether a run starts it."""
        return self.launcher != "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSystem:
    """The command that runs a JSONL batch; `{input}`, `{output}`, `{url}` and `{model}` are filled in."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a card costs per hour and a kilowatt-hour costs, in `currency`."""

    currency: str
    card_hour: float | None = None
    kwh: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMachines:
    """The machines that offer load, as nodes of the Ray cluster at `ray` (HOST:PORT).

    Without `nodes` all of its nodes do. `workers` is the number of processes on each, None for as many
    as a load's rate needs.
    """

    ray: str
    nodes: tuple[str, ...] = ()
    workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCards:
    """No card was found on this machine: the reason, and the next steps in order.

    `on_bus` means that a card may be on the bus: the driver is then judged.
    """

    why: str
    on_bus: bool = True
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The rack under test.

    `vantage` says what the tester can see (`operator`, `tenant` or `endpoint`); `may_break` names the kinds
    of thing that the owner lets us break, of which `engine` is the only one; `grade` is what the evidence
    is worth (one of `GRADES`) and follows from the engines: `unproven` where nothing shows what hardware
    answers. `prometheus_url` is a server that scrapes the nodes' exporters already, `prometheus_key_env`
    names the variable with its key; `ssh_config` is given to `ssh -F`; models are loaded from
    `storage_path` on every node. Load comes from `load_machines`, else from this one. `no_cards` is set
    where nobody declared the rack: preflight's card rows are then UNKNOWN, not absent.
    """

    name: str
    model: str
    grade: str
    nodes: tuple[Node, ...] = ()
    engines: tuple[EngineSpec, ...] = ()
    gateway: Gateway | None = None
    batch: BatchSystem | None = None
    prices: Prices | None = None
    vantage: str = "operator"
    may_break: tuple[str, ...] = ()
    prometheus_url: str | None = None
    prometheus_key_env: str | None = None
    ssh_config: str | None = None
    storage_path: str | None = None
    load_machines: LoadMachines | None = None
    no_cards: NoCards | None = None
    source: str = ""

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards of all nodes."""
        return tuple(card for node in self.nodes for card in node.cards)

    @property
    def made_here(self) -> bool:
        """Whether the rack is the simulated one, which a run makes itself."""
        return any(engine.launcher == "simulated" for engine in self.engines)

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools that engines belong to, each once."""
        return tuple(dict.fromkeys(engine.pool for engine in self.engines))

    def node_of(self, entity: str) -> str | None:
        """Return the node of a card, of an engine on one node, or of the node itself."""
        for node in self.nodes:
            if entity == node.name or any(card.name == entity for card in node.cards):
                return node.name
        for engine in self.engines:
            if entity == engine.name and len(engine.nodes) == 1:
                return engine.nodes[0]
        return None
