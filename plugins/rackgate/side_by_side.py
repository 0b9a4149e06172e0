"""Many questions at once before one deadline; nobody waits for one that hangs."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["within"]

_WIDTH = 64


def within(jobs: Mapping[Any, Callable[[], Any]], deadline_s: float) -> dict[Any, Any]:
    """Return what each job gave before the deadline, side by side; nobody waits for one that hangs.

    What a job raises is its answer too late: it has none.
    """
    waiting: queue.SimpleQueue[tuple[Any, Callable[[], Any]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Any, Any, bool]] = queue.SimpleQueue()
    for job in jobs.items():
        waiting.put(job)

    def work() -> None:
        while True:
            try:
                name, ask = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((name, ask(), True))
            except Exception as error:  # noqa: BLE001 - the boundary: an input that nobody could try
                done.put((name, error, False))

    for _ in range(min(_WIDTH, len(jobs))):
        threading.Thread(target=work, name="rackgate-asking", daemon=True).start()
    answers: dict[Any, Any] = {}
    end = time.monotonic() + deadline_s
    for _ in jobs:
        try:
            name, answer, good = done.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if good:
            answers[name] = answer
    return answers
