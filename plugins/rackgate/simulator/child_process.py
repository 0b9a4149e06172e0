"""How the processes of the simulated rack die together, and tell that they are ready.

The starter holds the write end of each child's standard input. When it ends, however it ends, the
child reads the end of the file and leaves. A forked engine is tied to its node by the kernel.
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
    """Have the kernel kill this process when its parent `parent` ends; leave if it already has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def read_plan() -> Any:
    """Return the JSON value of the first line of standard input; leaves if the starter has gone."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            sys.exit(1)
        line += piece
    return json.loads(line)


def say(message: dict[str, Any]) -> None:
    """Tell the starter, in one line of JSON."""
    os.write(1, json.dumps(message).encode() + b"\n")


def leave_on_end_of_input(loop: asyncio.AbstractEventLoop, leave: Callable[[], None]) -> None:
    """Call `leave` once the starter has closed our standard input or is gone."""

    def readable() -> None:
        if not os.read(0, 1 << 16):
            leave()

    loop.add_reader(0, readable)


def bound_socket(port: int = 0) -> socket.socket:
    """Return a loopback socket that holds a port without listening: calls to it are refused.

    A second one on the same port may listen, so that an engine that comes back has its old address.
    """
    # With the protocol named, or asyncio leaves Nagle's algorithm on and tokens wait for each other.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound
