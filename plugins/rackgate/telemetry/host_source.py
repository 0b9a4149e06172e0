"""Host source: CPU, memory, clock, network and InfiniBand ports, disk."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from rackgate.hosts.facts.clock import CLOCK_COMMANDS, clock_fact, clock_to_ours, distance_s
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.reading import HOST_FIELDS, Reading

_COUNTERS = ("symbol_error", "link_downed", "port_rcv_errors", "link_error_recovery")
_FILES = (
    "/proc/stat",
    "/proc/meminfo",
    "/proc/net/dev",
    "/sys/class/net/*/operstate",
    "/sys/class/infiniband/*/ports/*/state",
    *(f"/sys/class/infiniband/*/ports/*/counters/{name}" for name in _COUNTERS),
)
_OTHERS = (
    "xid_watch",
    "xid_events",
    "clock_to_ours_s",
    "clock_to_ours_bound_s",
)  # the kernel log's, and seldom asked
_FIELDS = tuple(name for name in HOST_FIELDS if name not in _OTHERS)
_EXCHANGE_S = 60.0
_DISK = Command(argv=("df", "-Pk", "/"))
_VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tun", "dummy")


class HostSource:
    """Readings of one node's host; asks at most every `every_s`, as one look may cross a network."""

    def __init__(self, node: str, runner: Runner, *, every_s: float = 5.0, deadline_s: float = 3.0) -> None:
        self.name = f"host {node}"
        self._node = node
        self._runner = runner
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._asked = -1e9
        self._cpu: tuple[float, float] | None = None
        self._clock_by = ""
        self._exchanged_at = -1e9

    def poll(self) -> list[Reading]:
        """Return every host field, or why there is none; nothing if it is not time yet."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked = time.monotonic()
        files = self._runner.read(_FILES, self._deadline_s)
        lost = next(
            (ran for ran in files.values() if ran.reason in (Reason.TIMEOUT, Reason.UNREACHABLE)), None
        )
        if lost is not None or not files:
            reason = lost.reason if lost is not None else None
            return self.nothing(
                reason or Reason.ABSENT, lost.detail if lost is not None else "no file at all"
            )
        clock, disk = self._clock(), self._runner.run(_DISK, self._deadline_s)
        values = host_signals(files, clock, disk)
        self._use_cpu(files, values)
        return self._readings(values, clock, uncounted(files)) + self._exchanged()

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return every host field without a value."""
        t_ns = time.perf_counter_ns()
        return [Reading(t_ns, self._node, self._node, name, None, reason, detail) for name in _FIELDS]

    def close(self) -> None:
        """Release the node."""
        self._runner.close()

    def _clock(self) -> Fact:
        """Ask the services that may know the clock's offset until one does, and that one from then on."""
        said: dict[str, Ran] = {}
        for name in (self._clock_by,) if self._clock_by else CLOCK_COMMANDS:
            said[name] = self._runner.run(CLOCK_COMMANDS[name], self._deadline_s)
            fact = clock_fact(said)
            if fact.value is not None:
                self._clock_by = name
                return fact
        self._clock_by = ""
        return clock_fact(said)

    def _exchanged(self) -> list[Reading]:
        """Return the node's clock - ours and half of the round trip, once a minute."""
        if time.monotonic() - self._exchanged_at < _EXCHANGE_S:
            return []
        self._exchanged_at = time.monotonic()
        found = distance_s(clock_to_ours(self._runner, self._deadline_s))
        t_ns = time.perf_counter_ns()
        names = ("clock_to_ours_s", "clock_to_ours_bound_s")
        return [
            Reading(t_ns, self._node, self._node, name, value)
            for name, value in zip(names, found or (), strict=False)
        ]

    def _use_cpu(self, files: Mapping[str, Ran], values: dict[str, float]) -> None:
        now = _cpu_times(files.get("/proc/stat"))
        before, self._cpu = self._cpu, now
        if now is not None and before is not None and now[1] > before[1]:
            values["cpu_pct"] = 100.0 * (now[0] - before[0]) / (now[1] - before[1])

    def _readings(
        self, values: Mapping[str, float], clock: Fact, silent: tuple[Reason, str] | None
    ) -> list[Reading]:
        t_ns = time.perf_counter_ns()
        readings = []
        for name in _FIELDS:
            value = values.get(name)
            reason, detail = None, ""
            if value is None:
                reason, detail = Reason.ABSENT, "the host has no such thing"
                if name == "clock_offset_s":
                    reason, detail = (
                        clock.reason or Reason.ABSENT,
                        clock.detail or "the clock is not synchronised",
                    )
                elif name == "infiniband_errors" and silent is not None:
                    reason, detail = silent
                elif name == "cpu_pct":
                    detail = "only known from the second look on"
            readings.append(Reading(t_ns, self._node, self._node, name, value, reason, detail))
        return readings


def host_signals(files: Mapping[str, Ran], clock: Fact, disk: Ran) -> dict[str, float]:
    """Return our host fields; what is not in the files, the clock's offset or `df` has no entry."""
    values: dict[str, float] = {}
    memory = re.search(r"^MemAvailable:\s+(\d+)", _text(files, "/proc/meminfo"), re.MULTILINE)
    if memory:
        values["host_memory_available_mib"] = int(memory[1]) / 1024
    _network(files, values)
    _infiniband(files, values)
    if clock.value is not None:
        values["clock_offset_s"] = float(clock.value)
    if disk.ok:
        last = disk.text.strip().splitlines()[-1].split()
        if len(last) >= 4 and last[3].isdigit():
            values["disk_free_mib"] = int(last[3]) / 1024
    return values


def _text(files: Mapping[str, Ran], path: str) -> str:
    return files[path].text if path in files else ""


def _network(files: Mapping[str, Ran], values: dict[str, float]) -> None:
    errors, down, real = 0, 0, 0
    for line in _text(files, "/proc/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        if len(columns) < 12 or name.strip().startswith(_VIRTUAL):
            continue
        real += 1
        errors += sum(int(columns[place]) for place in (2, 3, 10, 11))  # errors and drops, in and out
        down += _text(files, f"/sys/class/net/{name.strip()}/operstate").strip() == "down"
    if real:
        values |= {"network_errors": float(errors), "network_links_down": float(down)}


def _infiniband(files: Mapping[str, Ran], values: dict[str, float]) -> None:
    states = _port_states(files)
    if not states:
        return
    active = sum("ACTIVE" in state.text for state in states.values())
    values["infiniband_ports_active"] = float(active)
    values["infiniband_ports_down"] = float(len(states) - active)
    if uncounted(files) is None:
        counters = [ran.text.strip() for path, ran in files.items() if "/counters/" in path]
        values["infiniband_errors"] = float(sum(int(text) for text in counters if text.isdigit()))


def uncounted(files: Mapping[str, Ran]) -> tuple[Reason, str] | None:
    """Return why the errors of the InfiniBand ports are not known: an active port has a counter unread.

    None where all are read, and where there is no port.
    """
    for port, state in _port_states(files).items():
        device, _, number = port.removeprefix("/sys/class/infiniband/").partition("/ports/")
        if state.reason is not None:
            return state.reason, f"the state of port {number} of {device} may not be read"
        for name in _COUNTERS if "ACTIVE" in state.text else ():
            ran = files.get(f"{port}/counters/{name}")
            if ran is not None and ran.text.strip().isdigit():
                continue
            reason = ran.reason if ran is not None and ran.reason else Reason.ABSENT
            return reason, f"port {number} of {device} is active and gives no {name}"
    return None


def _port_states(files: Mapping[str, Ran]) -> dict[str, Ran]:
    """Return the state of each port, by the folder of the port."""
    return {
        path.removesuffix("/state"): ran
        for path, ran in files.items()
        if path.startswith("/sys/class/infiniband/") and path.endswith("/state")
    }


def _cpu_times(ran: Ran | None) -> tuple[float, float] | None:
    """Return (busy, all) in ticks since boot."""
    found = re.match(r"cpu\s+([\d ]+)", ran.text) if ran is not None else None
    if found is None:
        return None
    ticks = [int(one) for one in found[1].split()][:8]
    return float(sum(ticks) - sum(ticks[3:5])), float(sum(ticks))
