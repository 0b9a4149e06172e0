"""How far a node's clock is off: by its own time service, and by an exchange of moments with ours."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.nouns.measurement import Reason

CLOCK_COMMANDS = {
    "chronyc": Command(argv=("chronyc", "-c", "tracking"), grant="the package chrony, running"),
    "pmc": Command(
        argv=("pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"),
        root=True,
        grant="a sudoers rule for `pmc`, or membership of the group of ptp4l's socket",
    ),
    "timesyncd": Command(argv=("env", "LC_ALL=C", "timedatectl", "timesync-status")),
}
"""What is asked for the offset from a time server, the most exact first."""

_DATE = Command(argv=("date", "+%s.%N"))
_EXCHANGES = 3
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def clock_fact(said: Mapping[str, Ran]) -> Fact:
    """Return the clock's offset in seconds by the first service that knows it, or why none does.

    chrony's `tracking` (last offset), PTP's `master_offset` where there is a grandmaster, and what
    systemd-timesyncd found at its last packet, which `show-timesync` does not tell.
    """
    for name, find in _READERS.items():
        ran = said.get(name)
        value = find(ran.text) if ran is not None and ran.ok else None
        if value is not None:
            return Fact(value, None, f"by {name}")
    first = said.get("chronyc")
    if first is not None and first.reason is not Reason.TOOL_MISSING:
        return Fact(None, first.reason or Reason.ABSENT, first.detail or "chrony is not synchronised")
    tried = ", ".join(name for name, ran in said.items() if ran.reason is not Reason.TOOL_MISSING)
    text = "chronyc is not installed"
    if not tried:
        return Fact(None, Reason.TOOL_MISSING, text)
    return Fact(None, Reason.ABSENT, f"{text}; {tried} {'do' if ',' in tried else 'does'} not tell an offset")


def _chrony(text: str) -> str | None:
    columns = text.strip().split(",")
    if len(columns) < 14 or columns[13].strip() == "Not synchronised":
        return None
    return columns[4]


def _ptp(text: str) -> str | None:
    """Return the offset of this clock's own answer, the first, unless it is the grandmaster itself."""
    own = text.split("RESPONSE MANAGEMENT TIME_STATUS_NP")[1:2]
    found = re.search(r"master_offset\s+(-?\d+)", own[0]) if own else None
    there = re.search(r"gmPresent\s+true", own[0]) if own else None
    return f"{int(found[1]) / 1e9:.9f}" if found and there else None


def _timesyncd(text: str) -> str | None:
    offset = re.search(r"^\s*Offset:\s*([+-]?[\d.]+)(us|µs|ms|s|min)\s*$", text, re.MULTILINE)
    packets = re.search(r"^\s*Packet count:\s*(\d+)", text, re.MULTILINE)
    if offset is None or (packets is not None and packets[1] == "0"):
        return None
    return f"{float(offset[1]) * _UNITS_S[offset[2]]:.9f}"


_READERS: Mapping[str, Callable[[str], str | None]] = {
    "chronyc": _chrony,
    "pmc": _ptp,
    "timesyncd": _timesyncd,
}


def clock_to_ours(runner: Runner, deadline_s: float) -> Fact:
    """Return `OFFSET BOUND` in seconds: the node's clock minus ours, good to half of the round trip.

    Of three exchanges the quickest counts.
    """
    ends, best, last = time.monotonic() + deadline_s, None, None
    for _ in range(_EXCHANGES):
        left_s = ends - time.monotonic()
        if left_s <= 0:
            break
        before_ns = time.time_ns()
        last = runner.run(_DATE, left_s)
        after_ns = time.time_ns()
        if not last.ok or not re.fullmatch(r"\d+\.\d+", last.text.strip()):
            break
        bound_s = (after_ns - before_ns) / 2e9
        seconds, _, part = last.text.strip().partition(".")
        there_ns = int(seconds) * 10**9 + int(part[:9].ljust(9, "0"))
        if best is None or bound_s < best[1]:
            best = (there_ns - (before_ns + after_ns) / 2) / 1e9, bound_s
    if best is not None:
        return Fact(f"{best[0]:.6f} {best[1]:.6f}")
    reason = last.reason if last is not None else Reason.TIMEOUT
    detail = last.detail if last is not None else ""
    return Fact(None, reason or Reason.UNSUPPORTED, detail or "`date` gives no moment in nanoseconds")


def distance_s(fact: Fact) -> tuple[float, float, float] | None:
    """Return (offset, bound, distance that is proven) of `clock_to_ours` in seconds, None if unknown."""
    if fact.value is None:
        return None
    offset, bound = (float(one) for one in fact.value.split())
    return offset, bound, max(0.0, abs(offset) - bound)
