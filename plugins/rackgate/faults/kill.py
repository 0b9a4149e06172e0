"""The kill fault: SIGKILL, proven by silence; healed by a restart, proven by a token."""

from __future__ import annotations

import time

from rackgate.engines.readiness import gives_token, wait_for_token
from rackgate.nouns.engine import Engine, Killable


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
            if not self._handle.alive() and not gives_token(self._engine, 1.0):
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
        return wait_for_token(self._engine, self._deadline_s)
