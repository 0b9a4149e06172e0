"""The kernel's log as a source: follows `/dev/kmsg` or a file from where it is now, or from its start."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.event_book import EventBook
from rackgate.telemetry.kernel_log import parse_log
from rackgate.telemetry.log_folding import unfinished

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rackgate.target import Node
    from rackgate.telemetry.reading import Reading

__all__ = ["KernelLogSource"]

_REASONS = {
    errno.EPERM: Reason.NO_PERMISSION,
    errno.EACCES: Reason.NO_PERMISSION,
    errno.ENOENT: Reason.ABSENT,
}
_CHUNK = 1 << 20
_RECORD = 1 << 16


class KernelLogSource:
    """Events of one node's kernel: a reading each, and all of them in `book`.

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
        self.book = EventBook(node.name, card_of)
        self._path = path
        self._from_start = from_start
        self._utc_offset_s = utc_offset_s
        self._descriptor: int | None = None
        self._inode = 0
        self._is_device = False
        self._rest = b""
        self._held: list[str] = []

    def poll(self) -> list[Reading]:
        """Return that the log is read, and one reading for each XID or SXid since the last poll."""
        try:
            lines = self._lines()
        except OSError as error:
            self._problem(error)
            return [self.book.watch(self.problem, _REASONS.get(error.errno or 0, Reason.UNREACHABLE))]
        self.problem = ""
        if unfinished(lines) and not self._held:
            self._held = lines
            return [self.book.watch()]
        lines, self._held = [*self._held, *lines], []
        fresh = parse_log(lines, utc_offset_s=self._utc_offset_s)
        return [self.book.watch(), *self.book.add(fresh)]

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return that the log is not read now."""
        self.problem = detail
        return [self.book.watch(detail, reason)]

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
