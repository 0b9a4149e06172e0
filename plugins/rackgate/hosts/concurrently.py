"""Many questions at once before one deadline; nobody waits for one that hangs."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

_WIDTH = 64
_LOG = logging.getLogger(__name__)


def within(jobs: Mapping[Any, Callable[[], Any]], deadline_s: float) -> dict[Any, Any]:
    """Return what each job gave before the deadline, side by side; nobody waits for one that hangs.

    A job that raises gave no answer; why is logged, since that is a fault of ours.
    """
    waiting: queue.SimpleQueue[tuple[Any, Callable[[], Any]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    for job in jobs.items():
        waiting.put(job)

    def work() -> None:
        while True:
            try:
                name, ask = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((name, ask()))
            except Exception:  # noqa: BLE001 - the boundary: one question must not end the others
                _LOG.exception("%s could not be asked", name)
                done.put(())

    for _ in range(min(_WIDTH, len(jobs))):
        threading.Thread(target=work, name="rackgate-asking", daemon=True).start()
    answers: dict[Any, Any] = {}
    end = time.monotonic() + deadline_s
    for _ in jobs:
        try:
            answered = done.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if answered:
            name, answer = answered
            answers[name] = answer
    return answers
