"""The progress of a running load: one line that updates on a terminal, one line per 30 s in a log."""

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
    """Shows progress lines."""

    @property
    def every_s(self) -> float:
        """Seconds between lines."""

    def show(self, text: str) -> None:
        """Show a line, on a terminal in place of the line before."""

    def done(self) -> None:
        """Erase the line on a terminal."""


@dataclass(frozen=True, slots=True)
class NoProgress:
    """Shows nothing."""

    every_s: float = LOG_EVERY_S

    def show(self, text: str) -> None:
        """Ignore the line."""

    def done(self) -> None:
        """Do nothing."""


def show_progress(
    running: RunningLoad,
    load: Load,
    display: ProgressDisplay,
    *,
    extra: Callable[[], str] = str,
    until: float = math.inf,
) -> None:
    """Show the progress of a load until its end, or until the monotonic moment `until` in seconds.

    `extra` returns more text for each line.
    """
    shown_at = time.monotonic()
    before: LiveState | None = None
    while (left_s := min(display.every_s, until - time.monotonic())) > 0 and not running.wait(left_s):
        now_at = time.monotonic()
        if now_at < shown_at + 0.9 * display.every_s:
            continue
        state = running.live_state
        text = progress_text(load, state, running.recent(), before=before)
        display.show(" | ".join(part for part in (text, extra()) if part))
        shown_at, before = now_at, state
    display.done()


def progress_text(
    load: Load, state: LiveState | None, recent: Sequence[Sample], *, before: LiveState | None = None
) -> str:
    """Return the progress line of a load.

    Rates are those since `before`, by the workers' counters. Latencies and errors are those of `recent`, the
    last requests that finished since then.
    """
    if state is None or not state.start_ns or state.t_ns < state.start_ns:
        return "warming up"
    elapsed_s = (state.t_ns - state.start_ns) / 1e9
    left_s = elapsed_s / state.share_done - elapsed_s if state.share_done > 0 else math.inf
    measured = [sample for sample in recent if not sample.warmup]
    failed = sum(sample.outcome in FAILED for sample in measured)
    waits = sorted(wait for sample in measured if (wait := sample.ttft_ms(load.origin)) is not None)
    parts = [
        f"{elapsed_s:.0f} s, {max(0.0, left_s):.0f} s left" if left_s < math.inf else f"{elapsed_s:.0f} s",
        _rates(load, state, before),
        f"in flight {state.in_flight}",
        f"TTFT P50 {_rank(waits, 0.5):.0f} ms, P99 {_rank(waits, 0.99):.0f} ms" if waits else "no token yet",
        f"errors {failed / len(measured):.1%}" if measured else "none ended",
    ]
    if state.dropped:
        parts.append(f"{state.dropped} dropped")
    return " | ".join(parts)


def _rates(load: Load, state: LiveState, before: LiveState | None) -> str:
    """Return the offered rate of an open load, and the achieved rate, since the line before."""
    if before is None or before.start_ns != state.start_ns:
        before = replace(state, t_ns=state.start_ns, scheduled=0, started=0, in_flight=0)
    seconds = (state.t_ns - before.t_ns) / 1e9
    if seconds <= 0:
        return "no rate yet"
    ended = (state.started - state.in_flight) - (before.started - before.in_flight)
    achieved = f"achieved {max(0, ended) / seconds:.4g}/s"
    if not load.open:
        return achieved
    return f"offered {(state.scheduled - before.scheduled) / seconds:.4g}/s, {achieved}"


def _rank(values: Sequence[float], quantile: float) -> float:
    return values[max(0, math.ceil(quantile * len(values)) - 1)]


@dataclass(slots=True)
class StreamProgress:
    """Writes progress to a stream: overwrites the line on a terminal, and ignores write errors."""

    stream: TextIO
    log_every_s: float = LOG_EVERY_S
    _width: int = 0

    @property
    def every_s(self) -> float:
        """Seconds between lines."""
        return TERMINAL_EVERY_S if self.stream.isatty() else self.log_every_s

    def show(self, text: str) -> None:
        """Show a line, on a terminal in place of the line before."""
        terminal = self.stream.isatty()
        self._write(f"\r{text.ljust(self._width)}" if terminal else f"{text}\n")
        self._width = max(self._width, len(text))

    def done(self) -> None:
        """Erase the line on a terminal."""
        if self._width and self.stream.isatty():
            self._write(f"\r{' ' * self._width}\r")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()
