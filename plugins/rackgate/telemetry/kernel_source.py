"""The kernel's log as a source: follows `/dev/kmsg` or a file from where it is now, or from its start."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from rackgate.telemetry.kernel_log import KernelEvent, Placed, parse_log, place
from rackgate.telemetry.log_folding import unfinished
from rackgate.telemetry.log_line import boot_to_monotonic_ns
from rackgate.telemetry.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rackgate.measurement import Reason
    from rackgate.target import Node

__all__ = ["KernelLogSource"]

_KEPT_EVENTS = 10_000
_CHUNK = 1 << 20
_RECORD = 1 << 16


class KernelLogSource:
    """Events of one node's kernel: a reading each, and the events themselves by window.

    `card_of` maps canonical PCI addresses to entities; an event of no known card belongs to the node.
    `problem` says why nothing can be read, "" if it can: no event then means no knowledge, not health.
    `lost` counts how often the kernel overwrote lines before they were read.
    """

    def __init__(
        self,
        node: Node,
        path: Path,
        *,
        card_of: Mapping[str, str] | None = None,
        from_start: bool = True,
        utc_offset_s: float = 0.0,
    ) -> None:
        self.name = f"kernel log {node.name}"
        self.problem = ""
        self.lost = 0
        self.events: list[KernelEvent] = []
        self.card_of = dict(card_of or {})
        self.wall_to_monotonic_ns = time.perf_counter_ns() - time.time_ns()
        self._node = node
        self._path = path
        self._from_start = from_start
        self._utc_offset_s = utc_offset_s
        self._descriptor: int | None = None
        self._inode = 0
        self._is_device = False
        self._rest = b""
        self._held: list[str] = []

    def poll(self) -> list[Reading]:
        """Return one reading for each XID or SXid that came since the last poll."""
        try:
            lines = self._lines()
        except OSError as error:
            self._problem(error)
            return []
        self.problem = ""
        if unfinished(lines) and not self._held:
            self._held = lines
            return []
        lines, self._held = [*self._held, *lines], []
        fresh = parse_log(lines, utc_offset_s=self._utc_offset_s)
        self.events = [*self.events, *fresh][-_KEPT_EVENTS:]
        return [reading for event in fresh if (reading := self._reading(event)) is not None]

    def window(self, start_ns: int, end_ns: int) -> Placed:
        """Return all events so far, by where they lie to a window."""
        return place(self.events, start_ns, end_ns, self.wall_to_monotonic_ns)

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return no reading: that there was no event is nothing that can be measured."""
        self.problem = f"{reason}: {detail}"
        return []

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _problem(self, error: OSError) -> None:
        cure = ""
        if error.errno in (errno.EPERM, errno.EACCES):
            cure = "; add this user to the group that may read it (adm, systemd-journal), or CAP_SYSLOG"
        self.problem = f"{self._path}: {error.strerror}{cure}"
        self.close()

    def _reading(self, event: KernelEvent) -> Reading | None:
        moment = boot_to_monotonic_ns(event.line, self.wall_to_monotonic_ns)
        code = event.code if event.code is not None else event.equivalent_xid
        if moment is None or code is None or not event.trusted:
            return None
        entity = self.card_of.get(event.pci or "", self._node.name)
        field = "sxid" if event.kind == "sxid" else "xid"
        return Reading(moment, self._node.name, entity, field, float(code), None, event.text[:200])

    def _lines(self) -> list[str]:
        if self._descriptor is None or self._replaced():
            self._open()
        descriptor = self._descriptor
        if descriptor is None:
            return []
        raw = self._records(descriptor) if self._is_device else self._tail(descriptor)
        return [line for line in raw.decode("utf-8", "replace").split("\n") if line]

    def _open(self) -> None:
        first = self._inode == 0
        self.close()
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        seen = os.fstat(self._descriptor)
        self._inode, self._is_device = seen.st_ino, stat.S_ISCHR(seen.st_mode)
        self._rest = b""
        if first and not self._from_start:
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def _replaced(self) -> bool:
        """Return whether the file was rotated away or cut; what was not read of it is read first."""
        if self._is_device or self._descriptor is None:
            return False
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return now.st_ino != self._inode or now.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def _tail(self, descriptor: int) -> bytes:
        while chunk := os.read(descriptor, _CHUNK):
            self._rest += chunk
        whole, _, self._rest = self._rest.rpartition(b"\n")
        return whole

    def _records(self, descriptor: int) -> bytes:
        """Read records of `/dev/kmsg`, one a read; keys that follow a record on lines of their own go."""
        records = []
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                self.lost += 1
                continue
            if not record:
                break
            records.append(record.split(b"\n", 1)[0])
        return b"\n".join(records)
