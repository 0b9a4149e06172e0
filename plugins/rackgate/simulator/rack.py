"""Starts a simulated rack: real processes and sockets on ephemeral ports of the loopback."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rackgate.nouns.engine import Engine
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.target import Target
from rackgate.simulator.card_state import CardState, Slot, new_state, open_state
from rackgate.simulator.processes import RackProcess, RackStartFailed
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import CARD_MODEL, CARD_SKU, RackSettings, chosen_scenario, simulated_target

_START_TIMEOUT_S = 30.0
_REAP_TIMEOUT_S = 5.0
_CALL_TIMEOUT_S = 10.0


class EngineHandle:
    """A simulated engine's process (`Killable` and `Pausable`)."""

    def __init__(self, card: Card, state: CardState, control_url: str) -> None:
        self._card = card
        self._state = state
        self._control_url = control_url

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while it does not run."""
        return int(self._state[Slot.KILL_PID]) or None

    def kill(self) -> None:
        """Send SIGKILL to the engine's process and return at once."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the engine's process with SIGSTOP: its port stays open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the engine's process."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def alive(self) -> bool:
        """Return whether the engine's process exists and is no zombie."""
        pid = self.pid
        if pid is None:
            return False
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return state not in ("Z", "X")

    def restart(self) -> None:
        """Ask the node to start the engine; waits up to 5 s until the node has reaped a killed process."""
        deadline = time.monotonic() + _REAP_TIMEOUT_S
        while self.pid is not None and not self.alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        starts = self._state[Slot.STARTS]
        _call(f"{self._control_url}/control/engines/gpu{self._card.index}/start", method="POST")
        deadline = time.monotonic() + 0.5
        while self._state[Slot.STARTS] == starts and self.pid is None and time.monotonic() < deadline:
            time.sleep(0.005)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRack:
    """A running rack: its target with all URLs, and its engines."""

    settings: RackSettings
    scenario: Scenario
    target: Target
    engines: list[Engine]
    control_urls: dict[str, str]
    processes: dict[str, int]

    def gateway_status(self) -> dict[str, Any]:
        """Return the gateway's status page; raises OSError if it does not answer."""
        gateway = self.target.gateway
        status: dict[str, Any] = json.loads(_call(f"{gateway.url if gateway else ''}/status"))
        return status

    def engine_states(self, node: str) -> list[dict[str, Any]]:
        """Return pid and state of each engine of a node, from the node."""
        states: list[dict[str, Any]] = json.loads(_call(f"{self.control_urls[node]}/control/engines"))
        return states


@contextmanager
def start_rack(
    settings: RackSettings, *, log_dir: Path | str | None = None, scenario: Scenario | None = None
) -> Iterator[SimulatedRack]:
    """Run a rack until the block is left.

    `log_dir` receives the processes' logs. `scenario` replaces the shipped scenario of the settings. Raises
    ValueError for a scenario that is unknown or does not fit the rack, and RackStartFailed.
    """
    chosen, target = scenario or chosen_scenario(settings), simulated_target(settings)
    logs = None if log_dir is None else Path(log_dir)
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        descriptor = new_state(len(target.cards))
        stack.callback(os.close, descriptor)
        states = open_state(descriptor, len(target.cards))
        processes: list[RackProcess] = []
        stack.callback(_end_processes, processes, states)
        for module, name in (
            *(("node.server", node.name) for node in target.nodes),
            ("gateway.server", "gateway"),
        ):
            processes.append(RackProcess(module, name, state=descriptor, log_dir=logs))
        *nodes, gateway = processes
        for process, node in zip(nodes, target.nodes, strict=True):
            process.send_plan(_node_plan(settings, chosen, target, node, descriptor))
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        ports = [process.read_ports(deadline_s) for process in nodes]
        urls = _engine_urls(target, chosen, ports)
        _wait_until_serving(target, chosen, states, deadline_s)
        gateway.send_plan({"model": settings.model, "knobs": asdict(chosen.gateway), "engines": urls})
        host = chosen.gateway.url_host or "127.0.0.1"
        gateway_url = f"http://{host}:{gateway.read_ports(deadline_s)['gateway']}"
        control_urls = {
            node.name: f"http://127.0.0.1:{port['control']}"
            for node, port in zip(target.nodes, ports, strict=True)
        }
        running = _with_urls(target, urls, ports, gateway_url)
        yield SimulatedRack(
            settings=settings,
            scenario=chosen,
            target=running,
            engines=[
                Engine(
                    spec=spec,
                    url=urls[spec.name],
                    handle=EngineHandle(card, states[index], control_urls[card.node]),
                )
                for index, (spec, card) in enumerate(zip(running.engines, running.cards, strict=True))
            ],
            control_urls=control_urls,
            processes={process.name: process.pid for process in processes},
        )


def _end_processes(processes: Sequence[RackProcess], states: Sequence[CardState]) -> None:
    for process in processes:
        process.ask_to_end()
    for process in processes:
        process.ensure_ended(3.0)
    for state in states:  # a handle that outlives the rack must not kill a later process with the same pid
        state[Slot.PID] = state[Slot.KILL_PID] = 0


def _node_plan(
    settings: RackSettings, chosen: Scenario, target: Target, node: Node, descriptor: int
) -> dict[str, Any]:
    return {
        "node": node.name,
        "knobs": asdict(chosen.node(node.name)),
        "cards": [
            {
                "name": card.name,
                "uuid": card.uuid,
                "serial": card.serial,
                "pci": card.pci,
                "model": CARD_MODEL.format(sku=card.sku),
                "knobs": asdict(chosen.card(card.name)),
            }
            for card in node.cards
        ],
        "card_model": CARD_MODEL.format(sku=CARD_SKU),
        "model": settings.model,
        "seed": settings.seed,
        "state": descriptor,
        "first_card": target.cards.index(node.cards[0]),
        "cards_in_rack": len(target.cards),
    }


def _engine_urls(target: Target, chosen: Scenario, ports: Sequence[dict[str, Any]]) -> dict[str, str]:
    urls = {}
    for node, port in zip(target.nodes, ports, strict=True):
        for card in node.cards:
            host = chosen.card(card.name).url_host or "127.0.0.1"
            urls[card.name] = f"http://{host}:{port['engines'][card.index]}"
    return urls


def _wait_until_serving(
    target: Target, chosen: Scenario, states: Sequence[CardState], deadline_s: float
) -> None:
    expected = {
        card.name: state
        for card, state in zip(target.cards, states, strict=True)
        if chosen.card(card.name).listening
    }
    while missing := [name for name, state in expected.items() if not state[Slot.SERVING]]:
        if time.monotonic() > deadline_s:
            raise RackStartFailed(f"simulated engines do not serve in time: {', '.join(missing)}")
        time.sleep(0.005)


def _with_urls(
    target: Target, urls: dict[str, str], ports: Sequence[dict[str, Any]], gateway_url: str
) -> Target:
    return replace(
        target,
        nodes=tuple(
            replace(
                node,
                exporter_url=f"http://127.0.0.1:{port['exporter']}/metrics",
                access=_with_controller(node.access, port["control"]),
            )
            for node, port in zip(target.nodes, ports, strict=True)
        ),
        engines=tuple(replace(spec, url=urls[spec.name]) for spec in target.engines),
        gateway=replace(target.gateway, url=gateway_url) if target.gateway else None,
    )


def _with_controller(access: NodeAccess, port: int) -> NodeAccess:
    if access.redfish is None:
        return access
    return replace(access, redfish=replace(access.redfish, url=f"http://127.0.0.1:{port}"))


def _call(url: str, *, method: str = "GET") -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_CALL_TIMEOUT_S)
    try:
        connection.request(method, parts.path)
        return connection.getresponse().read()
    finally:
        connection.close()
