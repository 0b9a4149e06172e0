"""Whether an engine gives a token: now, or before a deadline unless it ends first."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from rackgate.engines.probe import EngineProbe, probe_engine
from rackgate.nouns.engine import Engine

_PATIENCE_S = 5.0
"""How long one request of several may take: an engine that comes back may have lost the first."""

_SETTLE_S = 3.0
"""How long an answer that waiting will not change must stand before the wait is given up."""


def gives_token(engine: Engine, deadline_s: float) -> bool:
    """Return whether a token comes out of one request before the deadline."""
    return _probed(engine, deadline_s).ok


def wait_for_token(
    engine: Engine, deadline_s: float, *, has_ended: Callable[[], bool] = lambda: False
) -> bool:
    """Ask until a token comes out; return False at the deadline, and as soon as the engine `has_ended`."""
    probe = wait_until_ready(lambda left_s: _probed(engine, min(_PATIENCE_S, left_s)), has_ended, deadline_s)
    return probe is not None and probe.ok


def _probed(engine: Engine, deadline_s: float) -> EngineProbe:
    spec = engine.spec
    return probe_engine(
        engine.url, spec.model, engine.headers, spec.protocol, max(0.1, deadline_s), route=spec.route
    )


def wait_until_ready(
    ask: Callable[[float], EngineProbe], has_ended: Callable[[], bool], deadline_s: float
) -> EngineProbe | None:
    """Ask until a token comes out; return the last probe, or None as soon as the engine has ended.

    `ask` gets the seconds left. A settled failure ends the wait before the deadline.
    """
    start = time.monotonic()
    settled_since: float | None = None
    while True:
        probe = _asked(ask, has_ended, max(0.05, start + deadline_s - time.monotonic()))
        now = time.monotonic()
        if probe is None or has_ended():
            return None
        settled_since = (settled_since or now) if probe.settled else None
        settled = settled_since is not None and now - settled_since >= min(_SETTLE_S, deadline_s / 2)
        if probe.ok or settled or now - start >= deadline_s:
            return probe
        time.sleep(0.02 if now - start < 2 else 0.1)


def _asked(
    ask: Callable[[float], EngineProbe], has_ended: Callable[[], bool], left_s: float
) -> EngineProbe | None:
    """Ask in a thread, so that the end of an engine ends the wait though a request still hangs."""
    answers: queue.SimpleQueue[EngineProbe] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(ask(left_s)), name="rackgate-ready", daemon=True).start()
    while True:
        try:
            return answers.get(timeout=0.05)
        except queue.Empty:
            if has_ended():
                return None
