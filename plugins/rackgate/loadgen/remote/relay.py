"""Load from other machines: found through Ray, reached through one process of ours that knows Ray.

Ray never runs in the process that judges: it puts threads, signal handlers and an `abort` of its own there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from rackgate.loadgen.child_process import start_child
from rackgate.loadgen.remote.load_machine import MachineInfo
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.nouns.decode import decode
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.target import LoadMachines

_CONNECT_S = 5.0
_GREETING_S = 60.0


class NoLoadMachines(ValueError):
    """The load machines cannot be used: nothing was offered."""


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises `NoLoadMachines`."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise NoLoadMachines(f"{text!r} is not HOST:PORT")
    return host, int(port)


def check_machines(machines: LoadMachines) -> None:
    """Raise `NoLoadMachines` if Ray is not installed here, or nothing answers at the cluster's address."""
    if importlib.util.find_spec("ray") is None:
        raise NoLoadMachines("load machines need Ray, here and there: pip install 'pytest-rackgate[ray]'")
    try:
        socket.create_connection(address_of(machines.ray), _CONNECT_S).close()
    except OSError as error:
        cure = "start it with `ray start --head`, and join it here and on each load machine"
        raise NoLoadMachines(f"no Ray cluster answers at {machines.ray} ({error}): {cure}") from error


class Relay:
    """The process that reaches the load machines, for one load.

    Raises `NoLoadMachines` if it finds none, or if they cannot reach one of the `endpoints` by its address.
    """

    def __init__(self, machines: LoadMachines, endpoints: Sequence[Endpoint]) -> None:
        check_machines(machines)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the relay lives
        self._control, there = socket.socketpair()
        with there:
            self._process = start_child(
                "rackgate.loadgen.remote.relay_process", control=there.fileno(), stderr=self._errors
            )
        self._words: str | None = None
        try:
            self._machines = self._greeted(machines)
            self._refuse_own_addresses(endpoints)
        except BaseException:
            self.end(0.0)
            raise

    @property
    def process_id(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it is there."""
        return self._process.poll() is None

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of each machine."""
        return tuple(about.cores for about in self._machines.values())

    def start(self, plans: Sequence[LoadPlan]) -> list[RelayWorkerLink]:
        """Let each plan be offered: worker by worker from machine to machine."""
        links = []
        for _ in plans:
            ours, theirs = os.pipe()
            socket.send_fds(self._control, [b" "], [theirs])
            os.close(theirs)
            links.append(RelayWorkerLink(self, ours))
        self._send(json.dumps([plan.to_json() for plan in plans]).encode() + b"\n")
        return links

    def cancel(self) -> None:
        """End the load on all machines."""
        self._send(b"cancel\n")

    def end(self, grace_s: float) -> str:
        """Let it end, kill it after `grace_s`; return how it ended. Safe to call again."""
        if self._words is None:
            self._control.close()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            self._words = f"the process that reaches the load machines died ({self._last_line()})"
            self._errors.close()
        return self._words

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # one that is gone is found out by the silence of its workers
            self._control.sendall(message)

    def _greeted(self, machines: LoadMachines) -> dict[str, MachineInfo]:
        self._send(json.dumps(asdict(machines)).encode() + b"\n")
        self._control.settimeout(_GREETING_S)
        said = b""
        try:
            while not said.endswith(b"\n") and (piece := self._control.recv(65536)):
                said += piece
        except TimeoutError:
            text = f"no Ray cluster answers at {machines.ray} within {_GREETING_S:g} s"
            raise NoLoadMachines(text) from None
        self._control.settimeout(None)
        if not said.endswith(b"\n"):
            raise NoLoadMachines(self.end(_CONNECT_S))
        told: dict[str, Any] = json.loads(said)
        if "refused" in told:
            raise NoLoadMachines(told["refused"])
        return {name: decode(MachineInfo, about) for name, about in told.items()}

    def _refuse_own_addresses(self, endpoints: Sequence[Endpoint]) -> None:
        """Raise `NoLoadMachines` for an address that is another one on each machine."""
        here = MachineInfo.here().boot
        away = [name for name, about in self._machines.items() if about.boot != here]
        for endpoint in endpoints:
            if away and _is_loopback(urlsplit(endpoint.url).hostname or ""):
                text = f"{endpoint.url} is load machine {away[0]} itself when it is asked there"
                raise NoLoadMachines(f"{endpoint.entity}: {text}")

    def _last_line(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}: {lines[-1]}" if lines else how


class RelayWorkerLink:
    """The way to one worker on a load machine."""

    def __init__(self, relay: Relay, output: int) -> None:
        self._relay = relay
        self.output = output

    @property
    def process_id(self) -> int:
        """The relay's process id."""
        return self._relay.process_id

    @property
    def running(self) -> bool:
        """True while the relay is there."""
        return self._relay.running

    def tell(self, message: bytes) -> None:  # noqa: ARG002 - there is one thing to say to a running worker
        """End the load, as whoever offers it tells each of its workers."""
        self._relay.cancel()

    def end(self, grace_s: float) -> str:
        """End the relay with all its workers."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        return self._relay.end(grace_s)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
