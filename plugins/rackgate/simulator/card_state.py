"""State shared by all processes of the simulated rack: a few numbers per card in anonymous memory."""

from __future__ import annotations

import mmap
import os
from enum import IntEnum


class Slot(IntEnum):
    """A number of a card; its only writer is the engine or the node."""

    BUSY_S = 0
    WORK_S = 1
    RUNNING = 2
    WAITING = 3
    KV_TOKENS = 4
    SERVING = 5
    PID = 6
    KILL_PID = 7
    CLOCK_FACTOR = 8
    STARTS = 9


_WIDTH = 16


class CardState:
    """The numbers of one card."""

    __slots__ = ("_numbers", "_offset")

    def __init__(self, numbers: memoryview[float], index: int) -> None:
        self._numbers = numbers
        self._offset = index * _WIDTH

    def __getitem__(self, slot: Slot) -> float:
        return self._numbers[self._offset + slot]

    def __setitem__(self, slot: Slot, number: float) -> None:
        self._numbers[self._offset + slot] = float(number)


def new_state(cards: int) -> int:
    """Return a file descriptor of new shared memory for this number of cards."""
    descriptor = os.memfd_create("rackgate-simulated-rack")
    os.ftruncate(descriptor, cards * _WIDTH * 8)
    for state in open_state(descriptor, cards):
        state[Slot.CLOCK_FACTOR] = 1.0
    return descriptor


def open_state(descriptor: int, cards: int) -> list[CardState]:
    """Return the state of each card, in the target's order."""
    numbers = memoryview(mmap.mmap(descriptor, cards * _WIDTH * 8)).cast("d")
    return [CardState(numbers, index) for index in range(cards)]
