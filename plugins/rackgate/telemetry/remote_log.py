"""The kernel's log of a node that is asked through a runner: journald where it is, else `dmesg`."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.event_book import EventBook
from rackgate.telemetry.kernel_log import parse_log
from rackgate.telemetry.runner import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rackgate.telemetry.kernel_log import KernelEvent
    from rackgate.telemetry.reading import Reading
    from rackgate.telemetry.runner import Ran, Runner

__all__ = ["RemoteKernelLog"]

_GRANT = "the group adm or systemd-journal for this user"
_DMESG = Command(argv=("dmesg",), grant="the group adm with kernel.dmesg_restrict=0, or CAP_SYSLOG")
_UPTIME = "/proc/uptime"
_FRESH_US = 1


class RemoteKernelLog:
    """Events of one node's kernel, at most every `every_s`; their times are on our clock.

    The node's boot clock is tied to ours by its uptime, read each time: good to half of a round trip.
    `problem` says why nothing can be read, "" if it can.
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
        self._runner = runner
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._asked = -1e9
        self._cursor: str | None = None
        self._use_dmesg = False
        self._newest_us = -1

    def poll(self) -> list[Reading]:
        """Return that the log is read, and one reading for each new XID or SXid; nothing if too early."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked = time.monotonic()
        offset_us = self._offset_us()
        if offset_us is None:
            return [self.book.watch(self.problem)]
        ran = self._log()
        if ran.reason is not None or ran.status:
            self.problem = ran.detail or f"status {ran.status}"
            return [self.book.watch(self.problem, ran.reason or Reason.UNSUPPORTED)]
        self.problem = ""
        fresh = self.book.add(self._rebased(event, offset_us) for event in self._fresh(ran.text))
        return [self.book.watch(), *fresh]

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return that the log is not read now."""
        self.problem = detail
        return [self.book.watch(detail, reason)]

    def close(self) -> None:
        """Let go of the node."""
        self._runner.close()

    def _offset_us(self) -> int | None:
        """Return our monotonic clock minus the node's time since boot, None if it does not answer."""
        before_ns = time.perf_counter_ns()
        ran = self._runner.read([_UPTIME], self._deadline_s).get(_UPTIME)
        middle_ns = (before_ns + time.perf_counter_ns()) // 2
        found = re.match(r"(\d+\.\d+)", ran.text) if ran is not None and ran.reason is None else None
        if found is None:
            self.problem = (
                ran.detail if ran is not None and ran.detail else "the node's uptime cannot be read"
            )
            return None
        return middle_ns // 1000 - round(float(found[1]) * 1e6)

    def _log(self) -> Ran:
        if not self._use_dmesg:
            place = (f"--after-cursor={self._cursor}",) if self._cursor else ("--boot",)
            argv = ("journalctl", "--dmesg", "--output=json", "--no-pager", "--quiet", *place)
            ran = self._runner.run(Command(argv=argv, grant=_GRANT), self._deadline_s)
            if ran.reason not in (Reason.TOOL_MISSING, Reason.NO_PERMISSION) and not ran.status:
                return ran
            self._use_dmesg = ran.reason is Reason.TOOL_MISSING or bool(ran.status)
        return self._runner.run(_DMESG, self._deadline_s)

    def _fresh(self, text: str) -> tuple[KernelEvent, ...]:
        if not self._use_dmesg:
            self._cursor = _last_cursor(text) or self._cursor
        newest_us = self._newest_us
        events = parse_log(text)
        fresh = tuple(
            event
            for event in events
            if event.line.boot_us is None or event.line.boot_us >= newest_us + _FRESH_US
        )
        stamps = [event.line.boot_us for event in events if event.line.boot_us is not None]
        self._newest_us = max([newest_us, *stamps])
        return fresh

    @staticmethod
    def _rebased(event: KernelEvent, offset_us: int) -> KernelEvent:
        if event.line.boot_us is None:
            return event
        line = replace(event.line, boot_us=event.line.boot_us + offset_us)
        return replace(event, line=line)


def _last_cursor(text: str) -> str | None:
    for line in reversed(text.splitlines()):
        try:
            cursor = json.loads(line).get("__CURSOR")
        except (ValueError, AttributeError):
            continue
        if cursor:
            return str(cursor)
    return None
