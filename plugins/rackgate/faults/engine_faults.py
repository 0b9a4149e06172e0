"""Faults of one engine: its process."""

from __future__ import annotations

import time

from rackgate.engines.readiness import gives_token, wait_for_token
from rackgate.nouns.engine import Engine, Killable


class KillEngine:
    """Kills an engine with SIGKILL and heals it by a restart.

    `deadline_s` bounds each proof. Raises TypeError if this run cannot kill the engine.
    """

    kind = "kill"

    def __init__(self, engine: Engine, deadline_s: float) -> None:
        if not isinstance(engine.handle, Killable):
            raise TypeError(f"engine {engine.name} ({engine.spec.launcher}) cannot be killed from here")
        self.entity = engine.entity
        self._engine = engine
        self._handle: Killable = engine.handle
        self._deadline_s = deadline_s
        self._killed = False

    def inject(self) -> None:
        """Send SIGKILL."""
        self._killed = True
        self._handle.kill()

    def prove(self) -> bool:
        """Return whether the process is gone and the engine gives no token, within 5 s."""
        end = time.monotonic() + min(5.0, self._deadline_s)
        while time.monotonic() < end:
            if not self._handle.alive() and not gives_token(self._engine, 1.0):
                return True
            time.sleep(0.05)
        return False

    def heal(self) -> None:
        """Start the engine again if it was killed and not yet restarted."""
        if self._killed:
            self._handle.restart()
            self._killed = False

    def prove_healed(self) -> bool:
        """Return whether the engine gives a token before the deadline."""
        return wait_for_token(self._engine, self._deadline_s)
