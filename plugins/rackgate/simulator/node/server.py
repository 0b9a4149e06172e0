"""Process of a simulated node: exporter, control port, and a forked engine process for each card.

The event loop stops for each fork, so that an engine starts with its own loop. The node's telemetry outlives
its engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from typing import Any

from rackgate.simulator.card_state import Slot, open_state
from rackgate.simulator.child_process import (
    bound_socket,
    die_with_parent,
    end_with_starter,
    read_plan,
    report_ports,
)
from rackgate.simulator.engine.scheduler import Scheduler
from rackgate.simulator.engine.server import EngineServer
from rackgate.simulator.http_server import PROMETHEUS_TEXT, Exchange, HttpConnection, json_bytes
from rackgate.simulator.knobs import CardKnobs, NodeKnobs, from_table
from rackgate.simulator.node.card_sensors import CardSensors
from rackgate.simulator.node.chassis import chassis_resource
from rackgate.simulator.node.exporter import ExporterCard, render_exporter
from rackgate.simulator.settings import pci_of

_TICK_S = 0.1


class _Node:
    """A node. `plan` is the JSON value from the starter."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.name: str = plan["node"]
        self.plan = plan
        self.knobs = from_table(NodeKnobs, plan["knobs"], self.name)
        self.cards = [from_table(CardKnobs, card["knobs"], card["name"]) for card in plan["cards"]]
        self.all_states = open_state(plan["state"], plan["cards_in_rack"])
        first = plan["first_card"]
        self.states = self.all_states[first : first + len(self.cards)]
        self.sensors = [
            CardSensors(knobs=knobs, state=state)
            for knobs, state in zip(self.cards, self.states, strict=True)
        ]
        self.exported = [
            ExporterCard(
                node=self.name,
                index=index,
                uuid=card["uuid"],
                serial=card["serial"],
                pci=card["pci"],
                model=card["model"],
                knobs=self.cards[index],
                sensors=self.sensors[index],
            )
            for index, card in enumerate(plan["cards"])
        ]
        if self.knobs.undeclared_card:
            self.exported.append(self._undeclared())
        self.reserved = [bound_socket() for _ in self.cards]
        self.ports: list[int] = [reserved.getsockname()[1] for reserved in self.reserved]
        self.wanted: list[int] = [index for index, card in enumerate(self.cards) if card.listening]
        self.loop = asyncio.new_event_loop()
        self.ticked = self.loop.time()
        self.exporter: asyncio.Server | None = None

    def _undeclared(self) -> ExporterCard:
        index = len(self.cards)
        return ExporterCard(
            node=self.name,
            index=index,
            uuid="GPU-00000000-0000-0000-0000-000000000000",
            serial="SIM0000000000",
            pci=pci_of(index),
            model=self.plan["card_model"],
            knobs=CardKnobs(),
            sensors=CardSensors(knobs=CardKnobs(), state=self.states[0]),
        )

    def run(self) -> None:
        loop = self.loop
        exporter, control = bound_socket(), bound_socket()
        if self.knobs.exporter_listening:
            self.exporter = loop.run_until_complete(
                loop.create_server(lambda: HttpConnection(self.export), sock=exporter)
            )
        loop.run_until_complete(loop.create_server(lambda: HttpConnection(self.control), sock=control))
        self.start_wanted_engines()
        end_with_starter(loop, self.end)
        loop.add_signal_handler(signal.SIGCHLD, self.reap)
        loop.call_soon(self.tick)
        report_ports(
            {
                "exporter": exporter.getsockname()[1],
                "control": control.getsockname()[1],
                "engines": self.ports,
            }
        )
        while True:
            loop.run_forever()
            self.start_wanted_engines()

    def tick(self) -> None:
        now = self.loop.time()
        for sensors in self.sensors:
            sensors.tick(now - self.ticked)
        self.ticked = now
        if self.exporter is not None and self.exporter_lost:
            self.exporter.close()
        self.loop.call_later(_TICK_S, self.tick)

    def start_wanted_engines(self) -> None:
        """Start the requested engines; called only while the loop is stopped."""
        while self.wanted:
            index = self.wanted.pop(0)
            state = self.states[index]
            if not state[Slot.PID]:
                state[Slot.PID] = self.fork(index)
                state[Slot.STARTS] += 1
            state[Slot.KILL_PID] = self.fork(None) if self.cards[index].kill_hits_decoy else state[Slot.PID]

    def fork(self, index: int | None) -> int:
        """Return the pid of a new engine process, or of an idle decoy without an index."""
        node = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                die_with_parent(node)
                os.closerange(3, 1 << 20)  # else its copies keep the node's connections open
                os.close(0)
                self.run_engine(index) if index is not None else _run_decoy()
            except BaseException:  # noqa: BLE001  # the child must not continue as a second node
                sys.excepthook(*sys.exc_info())
            os._exit(1)
        return pid

    def run_engine(self, index: int) -> None:
        """Serve as the engine of one card until the process ends."""
        knobs, state = self.cards[index], self.states[index]
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        scheduler = Scheduler(
            loop,
            knobs,
            state,
            siblings=[other for other in self.states if other is not state],
            others=[other for other in self.all_states if other is not state],
        )
        server = EngineServer(
            entity=self.plan["cards"][index]["name"],
            model=self.plan["model"],
            seed=self.plan["seed"],
            knobs=knobs,
            scheduler=scheduler,
            loop=loop,
        )
        listener = bound_socket(self.ports[index])
        loop.run_until_complete(
            loop.create_server(lambda: HttpConnection(server.handle), sock=listener, backlog=512)
        )
        state[Slot.SERVING] = 1.0
        gc.freeze()
        loop.run_forever()

    def reap(self) -> None:
        """Clear the state of ended engines."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for state in self.states:
                if state[Slot.KILL_PID] == pid:
                    state[Slot.KILL_PID] = 0
                if state[Slot.PID] == pid:
                    for slot in (Slot.PID, Slot.SERVING, Slot.RUNNING, Slot.WAITING, Slot.KV_TOKENS):
                        state[slot] = 0

    def end(self) -> None:
        for state in self.states:
            for slot in (Slot.PID, Slot.KILL_PID):
                if state[slot]:
                    _kill(int(state[slot]))
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        os._exit(0)

    @property
    def exporter_lost(self) -> bool:
        """Whether the first card has worked as long as the exporter lives."""
        lifetime_s = self.knobs.exporter_lost_after_busy_s
        return lifetime_s is not None and self.states[0][Slot.BUSY_S] >= lifetime_s

    def export(self, exchange: Exchange) -> None:
        if self.exporter_lost:
            exchange.cut()
        elif exchange.path == "/metrics":
            exchange.respond(200, render_exporter(self.exported), content_type=PROMETHEUS_TEXT)
        elif exchange.path == "/health":
            exchange.respond(200, b"KO" if not self.exported else b"OK", content_type="text/plain")
        else:
            exchange.respond(404, b"not found\n", content_type="text/plain")

    def control(self, exchange: Exchange) -> None:
        """Answer `GET /control/engines`, `POST /control/engines/gpuI/start` and requests to the chassis."""
        if exchange.path.startswith("/redfish/"):
            self._chassis(exchange)
            return
        parts = exchange.path.strip("/").split("/")
        if exchange.method == "GET" and parts == ["control", "engines"]:
            exchange.respond(200, json_bytes([self._engine(index) for index in range(len(self.cards))]))
            return
        if exchange.method == "POST" and parts[:2] == ["control", "engines"] and parts[3:] == ["start"]:
            names = [f"gpu{index}" for index in range(len(self.cards))]
            if parts[2] in names:
                self.start(names.index(parts[2]))
                exchange.respond(202, json_bytes({"accepted": True}))
                return
        exchange.respond(404, json_bytes({"detail": "Not Found"}))

    def _chassis(self, exchange: Exchange) -> None:
        resource = chassis_resource(
            exchange.path, self.knobs, sum(sensors.power_w for sensors in self.sensors)
        )
        if not self.knobs.controller_answers:
            exchange.respond(503, b"")
        elif exchange.method == "GET" and resource is not None:
            exchange.respond(200, json_bytes({"@odata.id": exchange.path, **resource}))
        else:
            exchange.respond(404, b"")

    def start(self, index: int) -> None:
        """Request the start of an engine, unless it runs or its card prevents a restart."""
        card = self.cards[index]
        if card.listening and card.restart_works and not self.states[index][Slot.KILL_PID]:
            self.wanted.append(index)
            self.loop.call_soon(self.loop.stop)

    def _engine(self, index: int) -> dict[str, Any]:
        state = self.states[index]
        pid = int(state[Slot.PID])
        condition = "stopped" if not pid else "serving" if state[Slot.SERVING] else "starting"
        return {
            "engine": self.plan["cards"][index]["name"],
            "pid": pid or None,
            "state": condition,
            "port": self.ports[index],
            "starts": int(state[Slot.STARTS]),
        }


def _run_decoy() -> None:
    while True:
        signal.pause()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> None:
    """Run the node that standard input describes."""
    _Node(read_plan()).run()


if __name__ == "__main__":
    main()
