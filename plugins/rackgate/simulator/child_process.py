"""The child's side of a process of the simulated rack: read the plan, report the ports, end with the starter.

The starter holds the write end of each child's standard input. When the starter ends, the child reads the
end of the file and ends too. The kernel ends a forked engine with its node.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when `parent` ends; exit if it has already ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def read_plan() -> Any:
    """Return the JSON value of the first line of standard input; exit if the starter has ended."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            sys.exit(1)
        line += piece
    return json.loads(line)


def report_ports(ports: dict[str, Any]) -> None:
    """Tell the starter, in one line of JSON, that this process is ready."""
    os.write(1, json.dumps(ports).encode() + b"\n")


def end_with_starter(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` once the starter has closed standard input or has ended."""

    def readable() -> None:
        if not os.read(0, 1 << 16):
            end()

    loop.add_reader(0, readable)


def bound_socket(port: int = 0) -> socket.socket:
    """Return a loopback socket that holds a port without listening, so that connections are refused.

    A second socket on the same port may listen, so that a restarted engine has its old address.
    """
    # Without the protocol asyncio leaves Nagle's algorithm on, and tokens wait for each other.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound
