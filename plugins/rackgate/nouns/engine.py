"""A running inference server, and the capabilities that a test can use on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rackgate.nouns.target import EngineSpec


@runtime_checkable
class Killable(Protocol):
    """An engine whose process can be ended the hard way and started again."""

    def kill(self) -> None:
        """Send SIGKILL to the engine's main process and return at once."""

    def alive(self) -> bool:
        """Return whether the engine's main process exists."""

    def restart(self) -> None:
        """Start the engine again where it was; return when the process exists, not when it serves."""


@runtime_checkable
class Pausable(Protocol):
    """An engine whose processes can be frozen: its port stays open, nothing answers."""

    def pause(self) -> None:
        """Freeze all its processes."""

    def resume(self) -> None:
        """Resume all its processes; does nothing if they run."""


@runtime_checkable
class Partitionable(Protocol):
    """An engine whose network can be cut between it and its clients, its process untouched.

    Both acts may be repeated, and do nothing once the engine is gone.
    """

    def partition(self) -> None:
        """Cut the network; return when no client reaches the engine."""

    def rejoin(self) -> None:
        """Heal the network; return when clients reach its address and port again."""


@runtime_checkable
class CardRemovable(Protocol):
    """An engine that can be started again with fewer of its cards."""

    def restart_without(self, *cards: str) -> None:
        """Start it again on its port without these cards; without arguments it gets all cards back.

        Raises `ValueError`, before anything is done, for a card that is not the engine's.
        """


@runtime_checkable
class CardKeeping(Protocol):
    """An engine that can be asked whether it still has its cards."""

    def cards_lost(self) -> str:
        """Return how its cards were lost, "" if it has them or cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that answers at `url` (scheme://host:port, no path).

    `handle` carries the capabilities: test with `isinstance(engine.handle, Killable)`, and
    so for `Pausable`, `Partitionable` and `CardRemovable`.
    `cold_start_s` is the time from start to the first token, None for an engine found running.
    """

    spec: EngineSpec
    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    handle: object = None
    cold_start_s: float | None = None
    image_digest: str | None = None
    log_path: str | None = None

    @property
    def name(self) -> str:
        """The engine's name in the target."""
        return self.spec.name

    @property
    def entity(self) -> str:
        """The entity that its checks are about."""
        return self.spec.entity


class LaunchFailed(Exception):
    """The engine did not come up; `hint` is the next step.

    `layer` is the layer of its failure (`Layer`); `log_tail` is the end of its log.
    """

    def __init__(self, message: str, *, layer: str, hint: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.layer = layer
        self.hint = hint
        self.log_tail = log_tail


class HeldBack(LaunchFailed):
    """The engine was not started because the check `by` FAILs on its node."""

    def __init__(self, message: str, *, by: str, layer: str, hint: str) -> None:
        super().__init__(message, layer=layer, hint=hint)
        self.by = by


class Launcher(Protocol):
    """Starts an engine and ends it on leaving, whatever happened in between."""

    def __call__(
        self, spec: EngineSpec, *, run_id: str, log_dir: str, on_progress: Callable[[str], None] | None = None
    ) -> AbstractContextManager[Engine]:
        """Return a context manager that yields the running engine; `on_progress` is told what goes on.

        Raises `LaunchFailed` on entering if no token came out before the deadline.
        """
