"""Settings of a simulated rack, and its target."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rackgate.nouns.node import Card, Expect, Node, NodeAccess, Redfish, vendor_of
from rackgate.nouns.target import BatchSystem, EngineSpec, Gateway, Member, Prices, Target
from rackgate.simulator.scenarios import Scenario, scenario

CARD_SKU = "SIM-700"
CARD_MODEL = "Simulated {sku} 141GB"
_LOGIN = "RACKGATE_SIMULATED_CONTROLLER"  # a variable that nobody sets, since the controller needs no login
_CONTROLLER = Redfish(url="http://127.0.0.1", user_env=_LOGIN, password_env=_LOGIN, session=False)
_EXPECTED = Expect(
    pins={
        "driver": "580.82.07",
        "cuda": "13.0",
        "kernel": "6.8.0-60-generic",
        "fabric_manager": "580.82.07",
        "container_toolkit": "1.17.8",
        "vbios": "96.00.74.00.01",
    },
    processes=("rackgate-simulated-engine",),
    firmware={"BMC": "24.10-4"},
    nvlinks=4,
    infiniband_ports=2,
    infiniband_rate=400,
    partition="0xffff",
    fabric=True,
    imex_nodes=2,
    mig=0,
    nvme_drives=2,
    container_image="rackgate/cuda:13.0",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RackSettings:
    """A simulated rack of `nodes` x `cards` with one engine per card and a shipped scenario."""

    nodes: int = 2
    cards: int = 2
    model: str = "rackgate/simulated-8b"
    scenario: str = "healthy"
    seed: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.nodes <= 64 and 1 <= self.cards <= 16):
            raise ValueError(f"a simulated rack has 1x1 to 64x16 cards, not {self.nodes}x{self.cards}")


def chosen_scenario(settings: RackSettings) -> Scenario:
    """Return the scenario; raises ValueError if it is unknown or needs cards or nodes that the rack lacks."""
    chosen = scenario(settings.scenario)
    names = {node for node, _ in _names(settings)} | {card for _, cards in _names(settings) for card in cards}
    lacking = [name for name in chosen.needs if name not in names]
    if lacking:
        raise ValueError(
            f"scenario {chosen.name!r} needs {', '.join(lacking)}; "
            f"a rack of {settings.nodes}x{settings.cards} has none"
            + (f": give --rack-target=sim:{chosen.size}" if chosen.size else "")
        )
    return chosen


def simulated_target(settings: RackSettings) -> Target:
    """Return the target before the rack runs, without URLs."""
    chosen = chosen_scenario(settings)
    nodes = tuple(
        Node(
            name=node,
            cards=tuple(
                _card(settings, node, index, chosen.card(card).sku or chosen.node(node).sku)
                for index, card in enumerate(cards)
            ),
            access=NodeAccess(root=_host_root(chosen.node(node).host_root), redfish=_CONTROLLER),
            expect=_EXPECTED,
        )
        for node, cards in _names(settings)
    )
    return Target(
        name=f"simulated rack {settings.nodes}x{settings.cards}",
        model=settings.model,
        grade="simulated",
        nodes=nodes,
        engines=tuple(
            EngineSpec(
                name=card.name,
                launcher="simulated",
                model=settings.model,
                offers=("completions", "structured_output", "tool_calls"),
                members=(Member(node=card.node, cards=(card.name,)),),
            )
            for node in nodes
            for card in node.cards
        ),
        gateway=Gateway(),
        batch=BatchSystem(command=_batch_command(chosen.batch)),
        prices=Prices(currency="USD", card_hour=2.5, kwh=0.15),
        may_break=("engine",),
        storage_path="/models",
        source=f"simulator, scenario {chosen.name}",
    )


def _host_root(name: str) -> str:
    """Return the name of a shipped host root; raises ValueError with the known names."""
    folder = Path(str(files(__package__))) / "host_roots"
    known = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if name not in known:
        raise ValueError(f"unknown host_root {name!r}; known are {', '.join(known)}")
    return name


def pci_of(index: int) -> str:
    """Return the PCI address of a card, which is the same on every node."""
    return f"0000:{0x1B + 0x0E * index:02x}:00.0"


def _names(settings: RackSettings) -> list[tuple[str, list[str]]]:
    return [
        (f"node{node}", [f"node{node}/gpu{card}" for card in range(settings.cards)])
        for node in range(1, settings.nodes + 1)
    ]


def _card(settings: RackSettings, node: str, index: int, sku: str) -> Card:
    name = f"{node}/gpu{index}"
    digest = hashlib.sha256(f"{settings.seed} {name}".encode()).hexdigest()
    uuid = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
    return Card(
        name=name,
        node=node,
        index=index,
        uuid=f"GPU-{uuid}",
        serial=f"SIM{int(digest[32:42], 16) % 10**10:010d}",
        pci=pci_of(index),
        sku=sku or CARD_SKU,
        vendor=vendor_of(sku),
    )


def _batch_command(defect: str) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "rackgate.simulator.batch_runner", "--defect", defect),
        *("--input", "{input}", "--output", "{output}", "--url", "{url}", "--model", "{model}"),
    )
