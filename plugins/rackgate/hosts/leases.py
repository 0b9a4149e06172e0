"""What several sources of one process hold at once: made for the first, closed after the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class _Held(Protocol):
    def close(self) -> None:
        """Let go of it."""


HeldT = TypeVar("HeldT", bound=_Held)
KeyT = TypeVar("KeyT", bound="Hashable")


class Leases(Generic[KeyT, HeldT]):
    """Things by key. `make` makes one when the first asks for it; it is closed when nobody holds it."""

    def __init__(self, make: Callable[[KeyT], HeldT]) -> None:
        self._make = make
        self._held: dict[KeyT, HeldT] = {}
        self._holders: dict[KeyT, int] = {}
        self._lock = threading.Lock()

    def take(self, key: KeyT) -> HeldT:
        """Return the thing of a key; each `take` wants one `give_back`."""
        with self._lock:
            if key not in self._held:
                self._held[key] = self._make(key)
            self._holders[key] = self._holders.get(key, 0) + 1
            return self._held[key]

    def give_back(self, key: KeyT) -> None:
        """Hold it no longer."""
        with self._lock:
            self._holders[key] -= 1
            if self._holders[key]:
                return
            del self._holders[key]
            held = self._held.pop(key)
        held.close()
