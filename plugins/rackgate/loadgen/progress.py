"""What is told while a load runs: one line that updates on a terminal, one line per 30 s in a log."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackgate.sample import FAILED, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rackgate.load import Load
    from rackgate.loadgen.now import Now
    from rackgate.loadgen.running import RunningLoad
    from rackgate.sample import Sample

__all__ = ["ProgressLine", "progress_text"]

_TERMINAL_EVERY_S = 1.0
_LOG_EVERY_S = 30.0


def progress_text(
    load: Load, now: Now | None, recent: Sequence[Sample], *, over_s: float, rate_per_s: float | None
) -> str:
    """Return where a load stands; `recent` are the requests that ended in the last `over_s`.

    `rate_per_s` is what the whole load offers per second, None in a closed one.
    """
    if now is None or not now.start_ns or now.t_ns < now.start_ns:
        return "warming up"
    elapsed_s = (now.t_ns - now.start_ns) / 1e9
    left_s = elapsed_s / now.share_done - elapsed_s if now.share_done > 0 else math.inf
    measured = [sample for sample in recent if not sample.warmup]
    done = [sample for sample in measured if sample.outcome is not Outcome.DROPPED]
    failed = sum(sample.outcome in FAILED for sample in measured)
    waits = sorted(wait for sample in done if (wait := sample.ttft_ms(load.origin)) is not None)
    parts = [
        f"{elapsed_s:.0f} s, {max(0.0, left_s):.0f} s left" if left_s < math.inf else f"{elapsed_s:.0f} s",
        f"{f'offered {rate_per_s:.4g}/s, ' if rate_per_s else ''}achieved {len(done) / over_s:.4g}/s",
        f"in flight {now.in_flight}",
        f"TTFT P50 {_rank(waits, 0.5):.0f} ms, P99 {_rank(waits, 0.99):.0f} ms" if waits else "no token yet",
        f"errors {failed / len(measured):.1%}" if measured else "none ended",
    ]
    if now.dropped:
        parts.append(f"{now.dropped} dropped")
    return " | ".join(parts)


def _rank(values: Sequence[float], quantile: float) -> float:
    return values[max(0, math.ceil(quantile * len(values)) - 1)]


@dataclass(slots=True)
class ProgressLine:
    """Tells how a load goes until it ends. Nothing is drawn over where `stream` is no terminal."""

    stream: TextIO
    rate_per_s: float | None = None
    _width: int = 0

    def watch(self, running: RunningLoad, load: Load) -> None:
        """Return when the load has ended; a failure to tell is no failure of the load."""
        terminal = self.stream.isatty()
        every_s = _TERMINAL_EVERY_S if terminal else _LOG_EVERY_S
        while not running.wait(every_s):
            recent = running.recent()
            text = progress_text(load, running.now, recent, over_s=every_s, rate_per_s=self.rate_per_s)
            self._say(text, terminal=terminal)
        if terminal and self._width:
            self._say("", terminal=True)

    def _say(self, text: str, *, terminal: bool) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(f"\r{text.ljust(self._width)}" if terminal else f"{text}\n")
            if terminal and not text:
                self.stream.write("\r")
            self.stream.flush()
        self._width = max(self._width, len(text))
