"""Kernel log source of this machine: follows `/dev/kmsg` or a file."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.kernel.kernel_log import parse_log
from rackgate.telemetry.kernel.log_line import parse_lines
from rackgate.telemetry.kernel.message_joining import unfinished
from rackgate.telemetry.reading import Reading

_REASONS = {
    errno.EPERM: Reason.NO_PERMISSION,
    errno.EACCES: Reason.NO_PERMISSION,
    errno.ENOENT: Reason.ABSENT,
}
_CHUNK = 1 << 20
_RECORD = 1 << 16


def may_be_read(path: Path) -> bool:
    """Return whether this user can open a log, by opening it: the kernel's device has rules of its own."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class KernelLogSource:
    """Events of one node's kernel: a reading each, and all of them in `book`.

    `problem` says why nothing can be read, "" if it can: no event then means no knowledge, not health.
    So does a log without a single line. Where the kernel overwrote lines before they were read, one look
    says so. Stamps without a zone are in this machine's time.
    """

    def __init__(
        self,
        node: Node,
        path: Path,
        *,
        card_of: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"kernel log {node.name}"
        self.problem = ""
        self.book = EventBook(node.name, card_of)
        self._path = path
        self._descriptor: int | None = None
        self._inode = 0
        self._is_device = False
        self._rest = b""
        self._held: list[str] = []
        self._proven = False
        self._lost = False

    def poll(self) -> list[Reading]:
        """Return that the log is read, and one reading for each event since the last poll."""
        at_ns, self._lost = time.perf_counter_ns(), False
        try:
            lines = self._lines()
        except OSError as error:
            self._problem(error)
            reason = _REASONS.get(error.errno or 0, Reason.UNREACHABLE)
            return [self.book.watch(self.problem, reason, at_ns=at_ns)]
        self._proven = self._proven or _has_kernel_line(lines)
        if not self._proven:
            self.problem = f"{self._path} has no line of a kernel: nothing shows that its log goes there"
            return [self.book.watch(self.problem, Reason.ABSENT, at_ns=at_ns)]
        self.problem = ""
        lost = "the kernel overwrote lines of its log before they were read" if self._lost else ""
        watch = self.book.watch(lost, Reason.INSTRUMENT, at_ns=at_ns)
        if unfinished(lines) and not self._held:
            self._held = lines
            return [watch]
        lines, self._held = [*self._held, *lines], []
        fresh = parse_log(lines, utc_offset_s=time.localtime().tm_gmtoff)
        return [watch, *self.book.add(fresh)]

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
        self.close()
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        seen = os.fstat(self._descriptor)
        self._inode, self._is_device = seen.st_ino, stat.S_ISCHR(seen.st_mode)
        self._rest = b""

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
                self._lost = True
                continue
            if not record:
                break
            records.append(record.split(b"\n", 1)[0])
        return b"\n".join(records)


def _has_kernel_line(lines: list[str]) -> bool:
    return any(line.from_kernel is not False for line in parse_lines(lines))
