"""Listening ports of this machine and the processes behind them, from `/proc`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket. This machine reaches it at `host`; `inode` identifies it."""

    host: str
    port: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process behind a socket: its command without options.

    `visible` holds the cards in its environment, None if the environment names none.
    """

    pid: int
    command: str
    visible: tuple[str, ...] | None


def listeners(*tables: str) -> tuple[Listener, ...]:
    """Return the listening sockets of `/proc/net/tcp` and `/proc/net/tcp6`, each port once."""
    found: dict[int, Listener] = {}
    for table in tables:
        for line in table.splitlines():
            columns = line.split()
            if len(columns) < 10 or columns[3] != _LISTEN or not columns[9].isdigit():
                continue
            address, _, port = columns[1].partition(":")
            host = _host(address)
            if host is not None and re.fullmatch(r"[0-9A-F]{4}", port):
                listener = Listener(host=host, port=int(port, 16), inode=int(columns[9]))
                found.setdefault(listener.port, listener)
    return tuple(sorted(found.values(), key=lambda listener: listener.port))


def _host(text: str) -> str | None:
    """Return the address in a column of the table: 32-bit words in the machine's byte order."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    ordered = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    if len(ordered) == 4:
        address = IPv4Address(ordered)
        return "127.0.0.1" if address.is_unspecified else str(address)
    if len(ordered) != 16:
        return None
    wide = IPv6Address(ordered)
    if wide.is_unspecified:
        return "127.0.0.1"
    return str(wide.ipv4_mapped) if wide.ipv4_mapped else f"[{wide}]"


def owners(inodes: set[int], proc: Path = Path("/proc")) -> dict[int, Owner]:
    """Return the owner of each socket, of the processes that this user may read."""
    found: dict[int, Owner] = {}
    for folder in proc.glob("[0-9]*"):
        try:
            links = [path.readlink().name for path in (folder / "fd").iterdir()]
        except OSError:  # the process of another user, or it has just ended
            continue
        held = {int(link[8:-1]) for link in links if re.fullmatch(r"socket:\[\d+\]", link)}
        for inode in held & inodes:
            found.setdefault(inode, _owner(folder))
    return found


def parents(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            after_name = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if len(after_name) > 1 and after_name[1].isdigit():
            found[int(path.parent.name)] = int(after_name[1])
    return found


def _owner(folder: Path) -> Owner:
    command = " ".join(_program(_null_separated(folder / "cmdline")))[:120]
    settings = dict(part.partition("=")[::2] for part in _null_separated(folder / "environ"))
    given = settings.get("CUDA_VISIBLE_DEVICES") or settings.get("NVIDIA_VISIBLE_DEVICES")
    visible = None
    if given and given not in ("all", "none", "void"):
        visible = tuple(part.strip() for part in given.split(",") if part.strip())
    return Owner(pid=int(folder.name), command=command, visible=visible)


def _program(words: list[str]) -> list[str]:
    """Return the words before the first option other than `-m`: an option may hold a key."""
    end = next(
        (index for index, word in enumerate(words) if not word or (word.startswith("-") and word != "-m")),
        len(words),
    )
    return words[:end]


def _null_separated(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []
