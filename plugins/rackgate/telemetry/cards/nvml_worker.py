"""The process that asks the driver: a question of `nvml_wire` in, an answer out, until its input ends.

`fields` of an answer names the values of each card, in their order. A driver that hangs takes this process
with it, not the one that measures.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

import pynvml

from rackgate.telemetry.cards.nvml import card_signals
from rackgate.telemetry.cards.nvml_facts import card_facts, driver_facts
from rackgate.telemetry.cards.nvml_fast_calls import brief_values
from rackgate.telemetry.cards.nvml_protocol import ALL, BRIEF, FULL, numbers_line, words_line

_XID_EVENT = 0x8
_WAIT_MS = 5000  # an event is told at once: this is how often nothing is
_TIMEOUT, _UNINITIALISED = 10, 1


class _Driver:
    """An open library with its cards and the XIDs that came since the last look."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self.handles: dict[int, Any] = {}
        self.refused: dict[int, int] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                self.handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
            except pynvml.NVMLError as error:
                self.refused[index] = error.value
        self.facts = {index: card_facts(pynvml, handle) for index, handle in self.handles.items()}
        self.brief = [brief_values(pynvml, handle) for handle in self.handles.values()]
        self.driver = driver_facts(pynvml)
        self.host_memory_bytes = _host_memory_bytes()
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.events_problem = ""
        event_set = self._registered()
        if event_set is not None:
            watch = threading.Thread(target=self._watch, args=(event_set,), name="xid-events", daemon=True)
            watch.start()

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def events(self) -> list[dict[str, Any]]:
        with self._lock:
            taken, self._events = self._events, []
        return taken

    def _registered(self) -> Any:
        """Return the set of XID events of all cards; None if the driver gives none, `events_problem` then."""
        try:
            event_set = pynvml.nvmlEventSetCreate()
            for handle in self.handles.values():
                pynvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, event_set)
        except pynvml.NVMLError as error:
            self.events_problem = f"no XID events from the driver: {error}"
            return None
        return event_set

    def _watch(self, event_set: Any) -> None:
        index_of = {_address(handle): index for index, handle in self.handles.items()}
        while True:
            try:
                event = pynvml.nvmlEventSetWait(event_set, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == _UNINITIALISED:
                    return
                if error.value != _TIMEOUT:
                    time.sleep(1.0)
                continue
            seen = {
                "t_ns": time.perf_counter_ns(),
                "index": index_of.get(_address(event.device)),
                "xid": int(event.eventData),
            }
            with self._lock:
                self._events.append(seen)


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _host_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _numbers(driver: _Driver) -> bytes | None:
    """Return what moves at once; None if a card gives no value, or there is more to say."""
    values: list[float] = []
    for ask in driver.brief:
        found = ask()
        if found is None:
            return None
        values += found
    return None if driver.has_events else numbers_line(time.perf_counter_ns(), values)


def _words(driver: _Driver, question: bytes, *, first: bool) -> bytes:
    slow = question == ALL
    brief = not slow and question != FULL
    names: list[str] = []
    cards: dict[int, list[Any]] = {}
    for index, handle in driver.handles.items():
        signals = card_signals(
            pynvml, handle, slow=slow, brief=brief, host_memory_bytes=driver.host_memory_bytes
        )
        names = list(signals)
        cards[index] = [
            one.value if one.reason is None else [one.reason, one.detail] for one in signals.values()
        ]
    answer: dict[str, Any] = {
        "t_ns": time.perf_counter_ns(),
        "fields": names,
        "cards": cards,
        "refused": driver.refused,
        "events": driver.events(),
    }
    if first:
        answer |= {"facts": driver.facts, "driver": driver.driver, "events_problem": driver.events_problem}
    return words_line(answer)


def main() -> None:
    """Answer each line of standard input."""
    driver: _Driver | None = None
    for question in sys.stdin.buffer:
        try:
            numbers = _numbers(driver) if driver is not None and question == BRIEF else None
            first = driver is None
            driver = driver or _Driver()
            answer = numbers or _words(driver, question, first=first)
        except pynvml.NVMLError as error:
            driver = None
            answer = words_line({"t_ns": time.perf_counter_ns(), "problem": error.value, "text": str(error)})
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
