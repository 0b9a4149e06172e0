"""The kill fault: SIGKILL, proven by silence; healed by a restart, proven by a token."""

from __future__ import annotations

import time
from collections.abc import Callable

from rackgate.engine import Engine, Killable

__all__ = ["KillEngine"]

Probe = Callable[[float], bool]
"""`probe(deadline_s)`: whether the engine gives a token before the deadline."""


class KillEngine:
    """Kills one engine. `deadline_s` bounds the proof of the effect and the proof of the healing."""

    kind = "kill"

    def __init__(self, engine: Engine, deadline_s: float) -> None:
        if not isinstance(engine.handle, Killable):
            raise TypeError(f"engine {engine.name} ({engine.spec.launcher}) cannot be killed from here")
        self.entity = engine.entity
        self._engine = engine
        self._handle: Killable = engine.handle
        self._deadline_s = deadline_s
        self._hurt = False

    def inject(self) -> None:
        """Send SIGKILL."""
        self._hurt = True
        self._handle.kill()

    def prove(self) -> bool:
        """Return whether the process is gone and no token comes out any more."""
        end = time.monotonic() + min(5.0, self._deadline_s)
        while time.monotonic() < end:
            if not self._handle.alive() and not self._token(1.0):
                return True
            time.sleep(0.05)
        return False

    def heal(self) -> None:
        """Start the engine again; nothing happens if it was never hurt or is healed already."""
        if self._hurt:
            self._handle.restart()
            self._hurt = False

    def prove_healed(self) -> bool:
        """Return whether a token comes out before the deadline."""
        end = time.monotonic() + self._deadline_s
        while time.monotonic() < end:
            if self._token(min(5.0, end - time.monotonic())):
                return True
            time.sleep(0.1)
        return False

    def _token(self, deadline_s: float) -> bool:
        from rackgate.engines.readiness import probe_engine

        engine = self._engine
        probe = probe_engine(
            engine.url,
            engine.spec.model,
            engine.headers,
            engine.spec.protocol,
            max(0.1, deadline_s),
            route=engine.spec.route,
        )
        return probe.first_token_ms is not None
