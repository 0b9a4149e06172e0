"""The network of a container, cut off and healed while its process goes on."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rackgate.engines.launchers.ports import hold_port

if TYPE_CHECKING:
    from docker.models.containers import Container


_PORT_DEADLINE_S = 5.0


class NetworkCut:
    """Takes a container off its networks and puts it back; it answers at its published port again.

    `local` says that the port is published on this machine: it is then kept from others meanwhile, since
    the daemon gives it up with the network, and a join that fails for a taken port cannot be repeated.
    """

    def __init__(self, container: Container, *, local: bool) -> None:
        self._container = container
        self._local = local
        self._away: dict[str, list[str]] = {}
        self._holds: list[socket.socket] = []

    def cut(self) -> None:
        """Take the container off all its networks; nothing happens if it is off or gone."""
        from docker.errors import NotFound

        if not self._found():
            return
        for name, facts in self._networks().items():
            with suppress(NotFound):  # container or network went at this moment
                self._api.disconnect_container_from_network(self._container.id, name)
            ident = str(self._container.id)
            # The daemon adds the container's short id by itself, each time.
            self._away[name] = [alias for alias in facts.get("Aliases") or () if not ident.startswith(alias)]
        try:
            self._hold()
        except OSError:  # taken already: asked again before the join, with a deadline
            self.release()

    def heal(self) -> None:
        """Put the container back on its networks; nothing happens if it is on them or gone.

        Raises `OSError` if the published port cannot be had again; a `local` one may then be healed later.
        """
        from docker.errors import NotFound

        if not self._away or not self._found():
            self.release()
            return
        running = self._container.status in ("running", "paused")
        if running:
            self._wait_for_port()
        self.release()
        present = self._networks()
        for name, aliases in self._away.items():
            if name not in present:
                with suppress(NotFound):
                    self._api.connect_container_to_network(self._container.id, name, aliases=aliases or None)
        self._away = {}
        if running and self._found() and not self._published():
            raise OSError(
                f"container {self._container.name} is on its network again, its port is not published"
            )

    def release(self) -> None:
        """Give up the port that is kept from others."""
        while self._holds:
            self._holds.pop().close()

    @property
    def _api(self) -> Any:
        return self._container.client.api

    def _found(self) -> bool:
        """Read the container anew; return whether there is one that can be joined."""
        from docker.errors import NotFound

        try:
            self._container.reload()
        except NotFound:
            return False
        return self._container.status not in ("dead", "removing")

    def _networks(self) -> dict[str, dict[str, Any]]:
        return dict(self._container.attrs["NetworkSettings"]["Networks"] or {})

    def _bindings(self) -> dict[str, list[dict[str, str]]]:
        return dict(self._container.attrs["HostConfig"]["PortBindings"] or {})

    def _published(self) -> bool:
        """Return whether each port that was asked for is bound; a container that ended needs none."""
        ports = self._container.attrs["NetworkSettings"]["Ports"] or {}
        running = self._container.status in ("running", "paused")
        return not running or all(ports.get(inside) for inside in self._bindings())

    def _hold(self) -> None:
        if not self._local or self._holds:
            return
        for bindings in self._bindings().values():
            for binding in bindings:
                self._holds.append(hold_port(binding["HostIp"] or "0.0.0.0", int(binding["HostPort"])))

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + _PORT_DEADLINE_S
        while True:
            try:
                self._hold()
            except OSError as error:
                self.release()
                if time.monotonic() > deadline:
                    raise OSError(
                        f"container {self._container.name}: its port was taken by somebody else: {error}"
                    ) from error
                time.sleep(0.05)
            else:
                return
