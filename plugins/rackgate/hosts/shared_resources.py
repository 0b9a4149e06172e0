"""Resources that several users of one process share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class _Held(Protocol):
    def close(self) -> None:
        """Close the resource."""


HeldT = TypeVar("HeldT", bound=_Held)
KeyT = TypeVar("KeyT", bound="Hashable")


class Leases(Generic[KeyT, HeldT]):
    """Reference-counted resources by key: created on first use, closed when the last lease is returned."""

    def __init__(self, make: Callable[[KeyT], HeldT]) -> None:
        self._make = make
        self._held: dict[KeyT, HeldT] = {}
        self._holders: dict[KeyT, int] = {}
        self._lock = threading.Lock()

    def take(self, key: KeyT) -> HeldT:
        """Return the resource of a key; each `take` needs one `give_back`."""
        with self._lock:
            if key not in self._held:
                self._held[key] = self._make(key)
            self._holders[key] = self._holders.get(key, 0) + 1
            return self._held[key]

    def give_back(self, key: KeyT) -> None:
        """Return a lease."""
        with self._lock:
            self._holders[key] -= 1
            if self._holders[key]:
                return
            del self._holders[key]
            held = self._held.pop(key)
        held.close()
