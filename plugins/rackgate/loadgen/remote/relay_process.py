"""The relay process: reaches load machines through Ray, with one actor per machine.

Its standard input is a socket on which it receives the cluster's address, then the workers' plans, then a
cancel. It ends the load when that socket closes, so that it never outlives its parent.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rackgate.loadgen.remote.load_machine import LoadMachine, MachineInfo
from rackgate.loadgen.remote.machine_load import MachineLoad, StartAgreement
from rackgate.loadgen.remote.relay import NoLoadMachines
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.nouns.decode import decode
from rackgate.nouns.target import LoadMachines

_CALL_TIMEOUT_S = 30.0
_FIRST_CALL_TIMEOUT_S = 45.0
_JOIN_TIMEOUT_S = 5.0


def main() -> int:
    """Run one load; the exit status is 0 if all machines ended in time."""
    control = socket.socket(fileno=os.dup(0))
    line, _ = _read_line(control)
    if not line:
        return 1
    try:
        machines = _machines(decode(LoadMachines, json.loads(line)))
    except NoLoadMachines as error:
        control.sendall(json.dumps({"refused": str(error)}).encode() + b"\n")
        return 1
    control.sendall(json.dumps({one.name: asdict(one.about) for one in machines}).encode() + b"\n")
    line, outputs = _read_line(control)
    if not line:
        return 1
    plans = [LoadPlan.from_json(text) for text in json.loads(line)]
    return _run(control, machines, plans, outputs)


class _Machine:
    """A load machine and its Ray actor."""

    def __init__(self, name: str, node_id: str) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.name = name
        self._ray = ray
        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        self._actor = ray.remote(LoadMachine).options(num_cpus=0, scheduling_strategy=place).remote()
        self._about = self._actor.about.remote()

    @property
    def about(self) -> MachineInfo:
        """The info of the machine. Raises `NoLoadMachines`."""
        try:
            about: MachineInfo = self._ray.get(self._about, timeout=_FIRST_CALL_TIMEOUT_S)
        except self._ray.exceptions.RayError as error:
            text = f"load machine {self.name} cannot be used (is pytest-rackgate installed there?)"
            raise NoLoadMachines(f"{text}: {_one_line(error)}") from error
        return about

    def call(self, method: str, *arguments: object) -> Any:
        """Return the result of a method of `LoadMachine`. Raises `ConnectionError` if the machine is lost."""
        try:
            return self._ray.get(getattr(self._actor, method).remote(*arguments), timeout=_CALL_TIMEOUT_S)
        except self._ray.exceptions.RayError as error:
            raise ConnectionError(f"load machine {self.name} was lost: {_one_line(error)}") from error


def _machines(wanted: LoadMachines) -> list[_Machine]:
    """Return the load machines of a cluster, sorted by name. Raises `NoLoadMachines`."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        ray.init(address=wanted.ray, namespace="rackgate", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise NoLoadMachines(f"no Ray cluster to join at {wanted.ray}: {_one_line(error)}") from error
    named = {node["NodeID"]: node["NodeName"] for node in ray.nodes() if node["Alive"]}
    names = list(named.values())
    unknown = [name for name in wanted.nodes if name not in names]
    if unknown:
        text = f"has no node {', '.join(unknown)}; it has {', '.join(sorted(names))}"
        raise NoLoadMachines(f"the Ray cluster at {wanted.ray} {text}")
    duplicates = {name for name in names if names.count(name) > 1}
    machines = [
        _Machine(f"{name}-{node_id[:8]}" if name in duplicates else name, node_id)
        for node_id, name in sorted(named.items(), key=lambda item: item[1])
        if not wanted.nodes or name in wanted.nodes
    ]
    ours = MachineInfo.here().version
    for machine in machines:
        if machine.about.version != ours:
            text = f"pytest-rackgate {machine.about.version} on load machine {machine.name}, {ours} here"
            raise NoLoadMachines(f"{text}: install the same version")
    return machines


def _run(control: socket.socket, machines: list[_Machine], plans: list[LoadPlan], outputs: list[int]) -> int:
    """Run the load on every machine until all have ended or the parent has died."""
    cancelled = threading.Event()
    start = StartAgreement(len(plans))
    parts = [
        MachineLoad(
            machine.name, machine.call, start, cancelled, _share(number, len(machines), plans, outputs)
        )
        for number, machine in enumerate(machines)
    ]
    threads = [threading.Thread(target=one.run, daemon=True) for one in parts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if select.select([control], [], [], 0.05)[0]:
            cancelled.set()
            if not control.recv(4096):
                break
    for thread in threads:
        thread.join(_JOIN_TIMEOUT_S)
    return int(any(thread.is_alive() for thread in threads))


def _share(
    number: int, machines: int, plans: list[LoadPlan], outputs: list[int]
) -> Mapping[int, tuple[LoadPlan, int]]:
    """Return the plans and output descriptors of one machine: every `machines`-th worker."""
    return {
        plans[worker].worker: (plans[worker], outputs[worker])
        for worker in range(number, len(plans), machines)
    }


def _read_line(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next line and the descriptors sent with it, an empty line if the parent has died."""
    data, descriptors = b"", []
    while not data.endswith(b"\n"):
        piece, received, _, _ = socket.recv_fds(control, 65536, 16)
        if not piece:
            return b"", []
        data += piece
        descriptors += received
    return data, descriptors


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join((lines[0], lines[-1]) if len(lines) > 1 else lines)[:400] or type(error).__name__


if __name__ == "__main__":
    _status = main()
    sys.stderr.flush()
    os._exit(_status)  # Ray ends the actors of a process that has exited
