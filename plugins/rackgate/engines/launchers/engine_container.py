"""A container with an engine in it: what can be asked of it and done to it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

__all__ = ["EngineContainer", "status_ended"]

_LOG_BYTES = 4 * 1024 * 1024


def status_ended(status: str) -> bool:
    """Return whether a container in this state will not come up by itself.

    `created` and `restarting` are ways to running, not ends.
    """
    return status in ("exited", "dead", "removing", "gone")


class EngineContainer:
    """A container with an engine in it: it can be killed and started again on the same port."""

    def __init__(self, box: DockerContainer) -> None:
        self._box = box
        self._inner: Container = box.get_wrapped_container()

    @property
    def ident(self) -> str:
        """The container's id."""
        return str(self._inner.id)

    @property
    def status(self) -> str:
        """The daemon's word for its state, read anew; `gone` if it was removed."""
        from docker.errors import NotFound

        try:
            self._inner.reload()
        except NotFound:
            return "gone"
        return str(self._inner.status)

    @property
    def exit_code(self) -> int:
        """What its main process ended with."""
        return int(self._inner.attrs["State"]["ExitCode"])

    def kill(self) -> None:
        """Send SIGKILL to the main process and return at once."""
        from docker.errors import APIError

        with suppress(APIError):  # it is not running: then there is nothing to kill
            self._inner.kill("SIGKILL")

    def alive(self) -> bool:
        """Return whether the container runs."""
        return self.status in ("running", "paused")

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the main process, SIGKILL when the grace is over."""
        from docker.errors import APIError

        with suppress(APIError):
            self._inner.stop(timeout=max(1, round(grace_s)))

    def restart(self) -> None:
        """Start the container again; its port stays, since it was given and not drawn by the daemon."""
        self._inner.start()

    def logs(self) -> bytes:
        """Return the end of what it wrote, at most about 4 MiB."""
        from docker.errors import APIError

        with suppress(APIError):
            return bytes(self._inner.logs(tail=20_000))[-_LOG_BYTES:]
        return b""

    def remove(self) -> None:
        """Remove the container and what it wrote."""
        from docker.errors import APIError

        with suppress(APIError):  # somebody removed it before us
            self._box.stop()

    def inspected(self) -> dict[str, Any]:
        """Return what the daemon knows of it, read anew."""
        self._inner.reload()
        return dict(self._inner.attrs)
