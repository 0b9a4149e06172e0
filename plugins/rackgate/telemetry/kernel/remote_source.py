"""Kernel log source of a remote node: the journal, or `dmesg` where there is none."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.kernel.kernel_log import KernelEvent, parse_log
from rackgate.telemetry.kernel.log_line import LogLine, parse_lines
from rackgate.telemetry.reading import Reading

_GRANT = "the group adm or systemd-journal for this user"
_JOURNAL = ("journalctl", "--dmesg", "--output=json", "--no-pager", "--quiet")
_DMESG = Command(argv=("dmesg",), grant="the group adm with kernel.dmesg_restrict=0, or CAP_SYSLOG")
_UPTIME = "/proc/uptime"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SILENT = (Reason.TIMEOUT, Reason.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boot:
    """Which boot a node is in: its id, "" if it does not say, and when it began on our clock."""

    boot_id: str
    uptime_us: int
    offset_us: int

    def follows(self, other: _Boot | None) -> bool:
        """Return whether the node was started anew since `other`."""
        if other is None:
            return False
        if self.boot_id and other.boot_id:
            return self.boot_id != other.boot_id
        return self.uptime_us < other.uptime_us


class RemoteKernelLog:
    """Events of one node's kernel, at most every `every_s`; their times are on our clock.

    The node's boot clock is tied to ours by its uptime, read each time: good to half of a round trip.
    `problem` says why nothing can be read, "" if it can: a log without a single line of this boot cannot,
    as journald shows an empty one to users who may not read it. Where lines may have been lost (the node
    was started anew, `dmesg` ran over) one look says so.
    """

    def __init__(
        self,
        node: str,
        runner: Runner,
        *,
        card_of: Mapping[str, str] | None = None,
        every_s: float = 5.0,
        deadline_s: float = 10.0,
    ) -> None:
        self.name = f"kernel log {node}"
        self.problem = ""
        self.book = EventBook(node, card_of)
        self._node = node
        self._runner = runner
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._asked = -1e9
        self._boot: _Boot | None = None
        self._begin_anew()

    def poll(self) -> list[Reading]:
        """Return that the log is read, and one reading for each new event; nothing if too early."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked, at_ns = time.monotonic(), time.perf_counter_ns()
        boot = self._boot_now()
        if boot is None:
            return [self.book.watch(self.problem, at_ns=at_ns)]
        lost = ""
        told: list[KernelEvent] = []
        if boot.follows(self._boot):
            self._begin_anew()
            event = _rebooted(self._node, boot)
            lost, told = f"{event.text}: the last lines before it may be lost", [event]
        self._boot = boot
        ran = self._log()
        if ran.reason is not None:
            self.problem = ran.detail
            return [self.book.watch(self.problem, ran.reason, at_ns=at_ns), *self.book.add(told)]
        self.problem = ""
        lost = lost or self._ran_over(ran.text)
        told += [_rebased(event, boot.offset_us) for event in self._fresh(ran.text)]
        return [self.book.watch(lost, Reason.INSTRUMENT, at_ns=at_ns), *self.book.add(told)]

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return that the log is not read now."""
        self.problem = detail
        return [self.book.watch(detail, reason)]

    def hurry(self) -> None:
        """Ask at the next poll."""
        self._asked = -1e9

    def close(self) -> None:
        """Release the node."""
        self._runner.close()

    def _begin_anew(self) -> None:
        self._cursor: str | None = None
        self._use_dmesg = False
        self._proven = False
        self._newest_us = self._newest_line_us = -1
        self._unstamped: Counter[str] = Counter()

    def _boot_now(self) -> _Boot | None:
        """Return the node's boot, None if it does not answer."""
        before_ns = time.perf_counter_ns()
        files = self._runner.read([_UPTIME, _BOOT_ID], self._deadline_s)
        middle_ns = (before_ns + time.perf_counter_ns()) // 2
        ran, named = files.get(_UPTIME), files.get(_BOOT_ID)
        found = re.match(r"(\d+\.\d+)", ran.text) if ran is not None and ran.reason is None else None
        if found is None:
            self.problem = (
                ran.detail if ran is not None and ran.detail else "the node's uptime cannot be read"
            )
            return None
        uptime_us = round(float(found[1]) * 1e6)
        boot_id = named.text.strip() if named is not None and named.reason is None else ""
        return _Boot(boot_id=boot_id, uptime_us=uptime_us, offset_us=middle_ns // 1000 - uptime_us)

    def _log(self) -> Ran:
        """Return what is new in the journal, or all that `dmesg` has; at first it must be something."""
        journal = None
        if not self._use_dmesg:
            place = (f"--after-cursor={self._cursor}",) if self._cursor else ("--boot",)
            journal = self._runner.run(Command(argv=(*_JOURNAL, *place), grant=_GRANT), self._deadline_s)
            if self._is_proof(journal) or journal.reason in _SILENT:
                return journal
        ring = self._runner.run(_DMESG, self._deadline_s)
        if self._is_proof(ring):
            self._use_dmesg = True
            return ring
        return _refused([ran for ran in (journal, ring) if ran is not None])

    def _is_proof(self, ran: Ran) -> bool:
        """Return whether it is the log, by a line of the kernel now or before."""
        good = ran.ok and (self._proven or _has_kernel_line(ran.text))
        self._proven = self._proven or good
        return good

    def _ran_over(self, text: str) -> str:
        """Return that `dmesg` lost lines since the last look, "" if it did not."""
        if not self._use_dmesg:
            return ""
        stamps = _stamps(text)
        before_us, self._newest_line_us = self._newest_line_us, max(stamps, default=-1)
        if before_us < 0 or (stamps and stamps[0] <= before_us):
            return ""
        return "the kernel's buffer ran over or was cleared since the last look: lines are lost"

    def _fresh(self, text: str) -> tuple[KernelEvent, ...]:
        """Return what was not there at the last look: after the cursor, or beyond what `dmesg` had."""
        events = parse_log(text)
        newest_us, self._newest_us = self._newest_us, max([self._newest_us, *map(_stamp_us, events)])
        if not self._use_dmesg:
            self._cursor = _last_cursor(text) or self._cursor
            return events
        before, self._unstamped = self._unstamped, Counter(_unstamped(events))
        by_text = {event.line.text: event for event in events}
        more = [by_text[text] for text in (self._unstamped - before).elements()]
        return (*(event for event in events if _stamp_us(event) > newest_us), *more)


def _stamp_us(event: KernelEvent) -> int:
    return -1 if event.line.boot_us is None else event.line.boot_us


def _unstamped(events: Iterable[KernelEvent]) -> list[str]:
    return [event.line.text for event in events if event.line.boot_us is None]


def _rebooted(node: str, boot: _Boot) -> KernelEvent:
    at = datetime.fromtimestamp(time.time() - boot.uptime_us / 1e6, tz=UTC)
    text = f"{node} rebooted at {at:%Y-%m-%d %H:%M:%S} UTC"
    return KernelEvent(
        kind="reboot", line=LogLine(text=text, boot_us=boot.offset_us, from_kernel=True), text=text
    )


def _rebased(event: KernelEvent, offset_us: int) -> KernelEvent:
    if event.line.boot_us is None:
        return event
    return replace(event, line=replace(event.line, boot_us=event.line.boot_us + offset_us))


def _refused(tried: list[Ran]) -> Ran:
    """Return why no way to the log gave a line of this boot, and what would cure it."""
    late = next((ran for ran in tried if ran.reason in _SILENT), None)
    if late is not None:
        return late
    said = "; ".join(ran.detail or "no line of this boot" for ran in tried)
    if all(ran.reason is Reason.TOOL_MISSING for ran in tried):
        return Ran(reason=Reason.TOOL_MISSING, detail=said)
    cure = "" if _GRANT in said else f"; it needs {_GRANT}"
    return Ran(reason=Reason.NO_PERMISSION, detail=f"the kernel's log gives nothing: {said}{cure}")


def _has_kernel_line(text: str) -> bool:
    return any(line.from_kernel is not False for line in parse_lines(text))


def _stamps(text: str) -> list[int]:
    """Return the stamps since boot of the lines, in their order."""
    return [line.boot_us for line in parse_lines(text) if line.boot_us is not None]


def _last_cursor(text: str) -> str | None:
    for line in reversed(text.splitlines()):
        try:
            cursor = json.loads(line).get("__CURSOR")
        except (ValueError, AttributeError):
            continue
        if cursor:
            return str(cursor)
    return None
