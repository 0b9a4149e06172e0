"""What is told while a load runs: one line that updates on a terminal, one line per 30 s in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TextIO

from rackgate.loadgen.running import RunningLoad
from rackgate.loadgen.worker.live_state import LiveState
from rackgate.nouns.load import Load
from rackgate.nouns.sample import FAILED, Sample

TERMINAL_EVERY_S = 1.0
LOG_EVERY_S = 30.0


class ProgressDisplay(Protocol):
    """Shows where a load stands, every so often."""

    @property
    def every_s(self) -> float:
        """Seconds between two lines."""

    def tell(self, text: str) -> None:
        """Show a line in place of the one before, where that can be."""

    def done(self) -> None:
        """Take away what a terminal still shows."""


@dataclass(frozen=True, slots=True)
class NoProgress:
    """Tells nothing."""

    every_s: float = LOG_EVERY_S

    def tell(self, text: str) -> None:
        """Let it go."""

    def done(self) -> None:
        """Nothing is shown."""


def show_progress(
    running: RunningLoad,
    load: Load,
    teller: ProgressDisplay,
    *,
    beside: Callable[[], str] = str,
    until: float = math.inf,
) -> None:
    """Return when the load has ended, or at the monotonic moment `until`, in seconds.

    `beside` gives more to tell.
    """
    told_at = time.monotonic()
    before: LiveState | None = None
    while (left_s := min(teller.every_s, until - time.monotonic())) > 0 and not running.wait(left_s):
        now_at = time.monotonic()
        if now_at < told_at + 0.9 * teller.every_s:
            continue
        now = running.now
        text = progress_text(load, now, running.recent(), before=before)
        teller.tell(" | ".join(part for part in (text, beside()) if part))
        told_at, before = now_at, now
    teller.done()


def progress_text(
    load: Load, now: LiveState | None, recent: Sequence[Sample], *, before: LiveState | None = None
) -> str:
    """Return where a load stands.

    Rates are those since `before`, by the workers' own counters; `recent` are requests that have ended
    since then, or the last of them, and give the latencies and the share of errors.
    """
    if now is None or not now.start_ns or now.t_ns < now.start_ns:
        return "warming up"
    elapsed_s = (now.t_ns - now.start_ns) / 1e9
    left_s = elapsed_s / now.share_done - elapsed_s if now.share_done > 0 else math.inf
    measured = [sample for sample in recent if not sample.warmup]
    failed = sum(sample.outcome in FAILED for sample in measured)
    waits = sorted(wait for sample in measured if (wait := sample.ttft_ms(load.origin)) is not None)
    parts = [
        f"{elapsed_s:.0f} s, {max(0.0, left_s):.0f} s left" if left_s < math.inf else f"{elapsed_s:.0f} s",
        _rates(load, now, before),
        f"in flight {now.in_flight}",
        f"TTFT P50 {_rank(waits, 0.5):.0f} ms, P99 {_rank(waits, 0.99):.0f} ms" if waits else "no token yet",
        f"errors {failed / len(measured):.1%}" if measured else "none ended",
    ]
    if now.dropped:
        parts.append(f"{now.dropped} dropped")
    return " | ".join(parts)


def _rates(load: Load, now: LiveState, before: LiveState | None) -> str:
    """Return what an open load offered and what ended per second, since the line before."""
    if before is None or before.start_ns != now.start_ns:
        before = replace(now, t_ns=now.start_ns, scheduled=0, started=0, in_flight=0)
    seconds = (now.t_ns - before.t_ns) / 1e9
    if seconds <= 0:
        return "no rate yet"
    ended = (now.started - now.in_flight) - (before.started - before.in_flight)
    achieved = f"achieved {max(0, ended) / seconds:.4g}/s"
    return (
        f"offered {(now.scheduled - before.scheduled) / seconds:.4g}/s, {achieved}" if load.open else achieved
    )


def _rank(values: Sequence[float], quantile: float) -> float:
    return values[max(0, math.ceil(quantile * len(values)) - 1)]


@dataclass(slots=True)
class StreamProgress:
    """Tells on a stream. Nothing is drawn over where it is no terminal; what cannot be told is let go."""

    stream: TextIO
    log_every_s: float = LOG_EVERY_S
    _width: int = 0

    @property
    def every_s(self) -> float:
        """Seconds between two lines."""
        return TERMINAL_EVERY_S if self.stream.isatty() else self.log_every_s

    def tell(self, text: str) -> None:
        """Show a line."""
        terminal = self.stream.isatty()
        self._write(f"\r{text.ljust(self._width)}" if terminal else f"{text}\n")
        self._width = max(self._width, len(text))

    def done(self) -> None:
        """Take the line away again."""
        if self._width and self.stream.isatty():
            self._write(f"\r{' ' * self._width}\r")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()
