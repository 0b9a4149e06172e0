"""Where readings come from: one interface, whatever the wire."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.reading import Reading


class Source(Protocol):
    """Something that can be asked for readings, each time from the same thread.

    `name` tells it apart in messages and records.
    """

    name: str

    def poll(self) -> list[Reading]:
        """Return what there is now; whatever went wrong is the reason of readings without a value."""

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return what a poll gives that did not answer in time."""

    def close(self) -> None:
        """Let go of connections and processes; safe to call twice."""


@runtime_checkable
class AskedSeldom(Protocol):
    """A source that asks less often than it is polled, as each look costs the node something."""

    def hurry(self) -> None:
        """Ask at the next poll."""


@runtime_checkable
class ListsCards(Protocol):
    """A source that knows which cards are there, also those that the target does not declare."""

    def listed(self) -> tuple[ListedCard, ...] | None:
        """Return every card of the latest poll; None if it did not answer."""
