"""A container with an engine in it: what can be asked of it and done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rackgate.engines.launchers.containers.devices import CardView, compare_views, node_view
from rackgate.engines.launchers.containers.network_cut import NetworkCut

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

    Again = Callable[[Sequence[str]], Callable[[], DockerContainer]]


_LOG_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 65_536


def status_ended(status: str) -> bool:
    """Return whether a container in this state will not come up by itself.

    `created` and `restarting` are ways to running, not ends.
    """
    return status in ("exited", "dead", "removing", "gone")


class EngineContainer:
    """A container with an engine in it: it can be killed and started again on the same port.

    It is `Killable`, `Pausable`, `CardRemovable` and `CardKeeping`.
    """

    def __init__(self, wrapper: DockerContainer, again: Again) -> None:
        self._wrapper = wrapper
        self._again = again
        self._cards_near: bool | None = None
        self._container: Container = wrapper.get_wrapped_container()

    @property
    def ident(self) -> str:
        """The container's id."""
        return str(self._container.id)

    @property
    def status(self) -> str:
        """The daemon's word for its state, read anew; `gone` if it was removed."""
        from docker.errors import NotFound

        try:
            self._container.reload()
        except NotFound:
            return "gone"
        return str(self._container.status)

    @property
    def exit_code(self) -> int:
        """What its main process ended with."""
        return int(self._container.attrs["State"]["ExitCode"])

    def kill(self) -> None:
        """Send SIGKILL to the main process and return at once."""
        from docker.errors import APIError

        with suppress(APIError):  # it is not running: then there is nothing to kill
            self._container.kill("SIGKILL")

    def alive(self) -> bool:
        """Return whether the container runs."""
        return self.status in ("running", "paused")

    def ended(self) -> str:
        """Return how its main process ended; empty while it runs or is on the way to running."""
        status = self.status
        if not status_ended(status):
            return ""
        return "its removal by somebody else" if status == "gone" else f"exit code {self.exit_code}"

    def tail(self) -> bytes:
        """Return the end of what it wrote."""
        return self.logs()[-_TAIL_BYTES:]

    def pause(self) -> None:
        """Freeze all its processes where they stand: ports stay open, nothing answers."""
        self._container.pause()

    def resume(self) -> None:
        """Let its processes go on; nothing happens if they do already."""
        if self.status == "paused":
            self._container.unpause()

    def card_view(self) -> CardView | None:
        """Return what `nvidia-smi -L` says in the container; None if it cannot be asked."""
        from docker.errors import APIError

        try:
            code, output = self._container.exec_run(["nvidia-smi", "-L"])
        except APIError:  # it has ended, or the daemon cannot find the program
            return None
        return CardView(exit_code=int(code or 0), said=bytes(output).decode("utf-8", "replace"))

    def expects_cards(self, *, near: bool) -> None:
        """Note that it was given cards; `near` says that this machine's own driver knows them too."""
        self._cards_near = near

    def cards_lost(self) -> str:
        """Return that it sees no card any more, as after a daemon-reload; "" if it does or cannot tell."""
        if self._cards_near is None or self.status != "running":
            return ""
        inside = self.card_view()
        if inside is None or inside.cards is None or inside.cards > 0:
            return ""
        name, message = compare_views(inside, node_view() if self._cards_near else None, None)
        return f"{message} [{name}]"

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the main process, SIGKILL when the grace is over."""
        from docker.errors import APIError

        with suppress(APIError):
            self.resume()
            self._container.stop(timeout=max(1, round(grace_s)))

    def restart(self) -> None:
        """Start the container again; its port stays: the daemon did not draw it."""
        self._container.start()

    def restart_without(self, *cards: str) -> None:
        """Make the container anew on its port, without these cards of the engine; none gives all back.

        Raises `ValueError`, before anything is done, for a card that is not the engine's.
        """
        start = self._again(cards)
        self.stop(1.0)
        self.remove()
        self._wrapper = start()
        self._container = self._wrapper.get_wrapped_container()

    def logs(self) -> bytes:
        """Return the end of what it wrote, at most about 4 MiB."""
        from docker.errors import APIError

        with suppress(APIError):
            return bytes(self._container.logs(tail=20_000))[-_LOG_BYTES:]
        return b""

    def remove(self) -> None:
        """Remove the container and what it wrote."""
        from docker.errors import APIError

        with suppress(APIError):  # somebody removed it before us
            self._wrapper.stop()

    def inspected(self) -> dict[str, Any]:
        """Return what the daemon knows of it, read anew."""
        self._container.reload()
        return dict(self._container.attrs)


class NetworkedContainer(EngineContainer):
    """An engine's container on a network that is not its machine's own: it is `Partitionable` too.

    `local` says that its port is published on this machine.
    """

    def __init__(self, wrapper: DockerContainer, again: Again, *, local: bool) -> None:
        super().__init__(wrapper, again)
        self._local = local
        self._network = NetworkCut(self._container, local=local)

    def partition(self) -> None:
        """Cut its network: clients are refused, its processes go on; the port is kept for it."""
        self._network.cut()

    def rejoin(self) -> None:
        """Heal its network; it is reached at its address and port again.

        Raises `OSError` if another program took the port meanwhile; on this machine it may be called again.
        """
        self._network.heal()

    def restart(self) -> None:
        """Start the container again, on its network; its port stays: the daemon did not draw it."""
        self._network.heal()
        super().restart()

    def restart_without(self, *cards: str) -> None:
        """Make the container anew on its port and network, without these cards of the engine."""
        super().restart_without(*cards)
        self._network = NetworkCut(self._container, local=self._local)

    def remove(self) -> None:
        """Remove the container and what it wrote, and give up its port."""
        self._network.release()
        super().remove()
