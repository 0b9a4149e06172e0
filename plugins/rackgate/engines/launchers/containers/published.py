"""Where the containers of one engine are published: an address, a port each, one for the metrics page."""

from __future__ import annotations

import ipaddress
import random
from contextlib import suppress

from rackgate.engines.launchers.containers.daemon import Daemon
from rackgate.engines.launchers.members import PartSpec
from rackgate.engines.launchers.ports import free_port
from rackgate.engines.launchers.settings import text, whole
from rackgate.engines.metrics_page import own_metrics_port

_REMOTE_PORTS = (20_000, 32_000)


class Published:
    """Draws an address and port for each part, and keeps them: a restarted engine is where it was."""

    def __init__(self) -> None:
        self._binds: dict[str, tuple[str, int]] = {}
        self._metrics_port: int | None = None

    def bind(self, part: PartSpec, daemon: Daemon) -> tuple[str, int]:
        """Return the one address and port of its node on which a part is published, or listens itself."""
        if part.short not in self._binds:
            address = text(part.spec.settings, "bind_address") or _bind_address(daemon)
            fixed = whole(part.spec.settings, "host_port")
            if on_host(part):
                fixed = fixed or whole(part.spec.settings, "port")
            self._binds[part.short] = (address, fixed or _drawn_port(daemon, address))
        return self._binds[part.short]

    def metrics(self, part: PartSpec, daemon: Daemon, inside: int) -> tuple[int, tuple[str, int]] | None:
        """Return the port of the front's metrics page inside, and where it is published.

        None for other parts, for a page on no port of its own, and where nothing is published; `inside` is
        the port that the part itself has.
        """
        own = own_metrics_port(part.spec) if part.front and not on_host(part) else None
        if own is None:
            return None
        address, port = self.bind(part, daemon)
        if own[0] == inside:
            return inside, (address, port)
        while self._metrics_port is None or self._metrics_port == port:
            self._metrics_port = _drawn_port(daemon, address)
        return own[0], (address, self._metrics_port)

    def forget(self, part: PartSpec) -> None:
        """Draw again for this part: somebody else has what was drawn."""
        self._binds.pop(part.short, None)
        self._metrics_port = None


def on_host(part: PartSpec) -> bool:
    """Return whether a part is on its machine's own network: nothing is published, nothing can be cut."""
    return text(part.spec.settings, "network") == "host"


def _drawn_port(daemon: Daemon, address: str) -> int:
    """Return a port that nobody has here, or on another machine probably nobody."""
    return free_port(address) if daemon.is_local else random.randint(*_REMOTE_PORTS)


def _bind_address(daemon: Daemon) -> str:
    """Return the address to publish on: loopback here, the node's own if its daemon is named by one."""
    if daemon.is_local:
        return "127.0.0.1"
    with suppress(ValueError):
        return str(ipaddress.ip_address(daemon.host))
    return "0.0.0.0"
