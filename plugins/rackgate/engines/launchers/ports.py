"""A free TCP port, and whether somebody has one."""

from __future__ import annotations

import contextlib
import socket


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on `host` (an address, not a name) that nobody has at this moment."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_taken(host: str, port: int) -> bool:
    """Return whether binding `host`:`port` is impossible now, because of a listener there."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return False
    return True


def hold_port(host: str, port: int) -> socket.socket:
    """Return a socket that keeps `host`:`port` (an address) from others and refuses whoever connects.

    Raises `OSError` if somebody has it.
    """
    holder = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        # Connections that just ended there are no obstacle, as they are none to a server.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, port))
    except OSError:
        holder.close()
        raise
    return holder


def url_of(host: str, port: int) -> str:
    """Return `http://host:port`, an IPv6 address in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
