"""The relay: a child process that runs a load's workers on load machines through Ray.

Ray never runs in the process that judges, because it installs threads and signal handlers and may abort.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from rackgate.loadgen.child_process import ChildProcess
from rackgate.loadgen.remote.load_machine import MachineInfo
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.nouns.decode import decode
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.target import LoadMachines

_CONNECT_TIMEOUT_S = 5.0
_GREETING_TIMEOUT_S = 60.0


class NoLoadMachines(ValueError):
    """The load machines cannot be used, and no load was started."""


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises `NoLoadMachines`."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise NoLoadMachines(f"{text!r} is not HOST:PORT")
    return host, int(port)


def check_machines(machines: LoadMachines) -> None:
    """Raise `NoLoadMachines` if Ray is not installed or its cluster does not answer."""
    if importlib.util.find_spec("ray") is None:
        raise NoLoadMachines("load machines need Ray, here and there: pip install 'pytest-rackgate[ray]'")
    try:
        socket.create_connection(address_of(machines.ray), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        hint = "start it with `ray start --head`, and join it here and on each load machine"
        raise NoLoadMachines(f"no Ray cluster answers at {machines.ray} ({error}): {hint}") from error


class Relay:
    """The process that reaches the load machines of one load.

    Raises `NoLoadMachines` if it finds none, or if they cannot reach an endpoint by its address.
    """

    def __init__(self, machines: LoadMachines, endpoints: Sequence[Endpoint]) -> None:
        check_machines(machines)
        self._control, there = socket.socketpair()
        with there:
            self.process = ChildProcess(
                "rackgate.loadgen.remote.relay_process", control=there.fileno(), describe_exit=_describe_exit
            )
        try:
            self._machines = self._receive_machines(machines)
            self._refuse_own_addresses(endpoints)
        except BaseException:
            self.end(0.0)
            raise

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of each machine."""
        return tuple(about.cores for about in self._machines.values())

    def start(self, plans: Sequence[LoadPlan]) -> list[RelayWorkerLink]:
        """Start a worker for each plan, distributed over the machines in turn."""
        links = []
        for _ in plans:
            ours, theirs = os.pipe()
            socket.send_fds(self._control, [b" "], [theirs])
            os.close(theirs)
            links.append(RelayWorkerLink(self, ours))
        self._send(json.dumps([plan.to_json() for plan in plans]).encode() + b"\n")
        return links

    def cancel(self) -> None:
        """Let all machines end the load."""
        self._send(b"cancel\n")

    def end(self, grace_s: float) -> str:
        """Let the process end, kill it after `grace_s`, and return how it ended; safe to call twice."""
        self._control.close()
        return self.process.end(grace_s)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # a dead relay is noticed by the end of its workers' output
            self._control.sendall(message)

    def _receive_machines(self, machines: LoadMachines) -> dict[str, MachineInfo]:
        self._send(json.dumps(asdict(machines)).encode() + b"\n")
        self._control.settimeout(_GREETING_TIMEOUT_S)
        received = b""
        try:
            while not received.endswith(b"\n") and (piece := self._control.recv(65536)):
                received += piece
        except TimeoutError:
            text = f"no Ray cluster answers at {machines.ray} within {_GREETING_TIMEOUT_S:g} s"
            raise NoLoadMachines(text) from None
        self._control.settimeout(None)
        if not received.endswith(b"\n"):
            raise NoLoadMachines(self.end(_CONNECT_TIMEOUT_S))
        message: dict[str, Any] = json.loads(received)
        if "refused" in message:
            raise NoLoadMachines(message["refused"])
        return {name: decode(MachineInfo, about) for name, about in message.items()}

    def _refuse_own_addresses(self, endpoints: Sequence[Endpoint]) -> None:
        """Raise `NoLoadMachines` for a loopback address, which is a different server on each machine."""
        here = MachineInfo.here().boot
        others = [name for name, about in self._machines.items() if about.boot != here]
        for endpoint in endpoints:
            if others and _is_loopback(urlsplit(endpoint.url).hostname or ""):
                text = f"{endpoint.url} is load machine {others[0]} itself when it is asked there"
                raise NoLoadMachines(f"{endpoint.entity}: {text}")


class RelayWorkerLink:
    """The connection to one worker on a load machine."""

    def __init__(self, relay: Relay, output: int) -> None:
        self._relay = relay
        self.output = output

    @property
    def process_id(self) -> int:
        """The relay's process id."""
        return self._relay.process.process_id

    @property
    def running(self) -> bool:
        """True while the relay exists."""
        return self._relay.process.running

    def send(self, message: bytes) -> None:  # noqa: ARG002 - the only message is "cancel"
        """Cancel the load on all machines."""
        self._relay.cancel()

    def end(self, grace_s: float) -> str:
        """End the relay and with it all workers."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        return self._relay.end(grace_s)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _describe_exit(status: str, last_line: str) -> str:
    how = f"{status}: {last_line}" if last_line else status
    return f"the process that reaches the load machines died ({how})"
