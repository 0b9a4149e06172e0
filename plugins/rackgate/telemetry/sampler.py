"""Polls every source in a thread of its own and keeps what they say, part by part, on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.cards.exporter_source import ExporterSource
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.source import AskedSeldom, Source
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.thinning import REACH_BACK_NS, Thinning

_KEPT_READINGS = 200_000
_LOOKED_THROUGH = 20_000
_NOW_S = 5.0


class _Lane:
    """One source and the thread that polls it: a source that hangs holds up nobody else."""

    def __init__(self, source: Source, sampler: Sampler) -> None:
        self.source = source
        self.asked_ns = 0
        self.looked_ns = 0
        self._sampler = sampler
        # Held until the end: to wait for a lock costs half of what waiting for an event does.
        self._going = threading.Lock()
        self._going.acquire()
        self.thread = threading.Thread(
            target=self._run, name=f"rackgate-telemetry {source.name}", daemon=True
        )

    def complete_ns(self, now_ns: int) -> int:
        """Return until when all that the source has to say is there; 0 before it said anything."""
        return (self.asked_ns or now_ns) if self.looked_ns else 0

    def end(self) -> None:
        """End the wait for the next tick."""
        self._going.release()

    def overdue(self, now_ns: int, timeout_s: float) -> bool:
        return bool(self.asked_ns) and now_ns - self.asked_ns > timeout_s * 1e9

    def _run(self) -> None:
        sampler, ticks, started = self._sampler, 0, time.perf_counter()
        interval_s = sampler.interval_s
        while not sampler.stopping.is_set():
            began_ns = self.asked_ns = time.perf_counter_ns()
            readings = polled(self.source)
            sampler.take(readings)
            self.looked_ns = began_ns
            self.asked_ns = 0
            ticks = max(ticks + 1, int((time.perf_counter() - started) / interval_s))
            self._going.acquire(timeout=max(0.0, started + ticks * interval_s - time.perf_counter()))
        self.source.close()


def polled(source: Source) -> list[Reading]:
    """Return what a source says; what it raises becomes readings with a reason."""
    try:
        return source.poll()
    except Exception as error:  # noqa: BLE001 - the boundary: it becomes readings with a reason
        return source.nothing(Reason.INSTRUMENT, f"{source.name}: {type(error).__name__}: {error}")


class Sampler:
    """Samples all sources every `interval_s` from `start` to `stop`; memory is bounded by writing parts.

    A node among the sources stands for its exporter. A source that does not answer within `timeout_s`
    gives readings without a value until it does.
    """

    def __init__(
        self,
        sources: Sequence[Source | Node],
        folder: Path,
        *,
        interval_s: float,
        timeout_s: float = 2.0,
    ) -> None:
        self._folder = folder
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._thinning = Thinning()
        self._recent: list[Reading] = []
        self._lock = threading.Lock()
        self._parts: list[tuple[int, int, Path]] = []
        self._written = 0
        self._dropped_until_ns = -1
        self.stopping = threading.Event()
        self._lanes = [_Lane(_as_source(one, timeout_s), self) for one in sources]
        self._watch = threading.Thread(target=self._watching, name="rackgate-telemetry", daemon=True)

    @property
    def interval_s(self) -> float:
        """Seconds between two samples of a signal."""
        return self._interval_s

    @property
    def last_sample_ns(self) -> int:
        """Until when the samples of all sources that answer are there; 0 before the first."""
        now_ns = time.perf_counter_ns()
        answering = [lane for lane in self._lanes if not lane.overdue(now_ns, self._timeout_s)]
        return min((lane.complete_ns(now_ns) for lane in answering), default=now_ns)

    @property
    def last_look_ns(self) -> int:
        """When the slowest source that answers was last asked for what it gave; 0 before the first."""
        now_ns = time.perf_counter_ns()
        looked = [lane.looked_ns for lane in self._lanes if not lane.overdue(now_ns, self._timeout_s)]
        return min(looked, default=now_ns)

    def hurry(self) -> None:
        """Have every source that is asked seldom asked at its next poll."""
        for lane in self._lanes:
            if isinstance(lane.source, AskedSeldom):
                lane.source.hurry()

    def hottest(self) -> str:
        """Return the card that is hottest now, such as `hottest node1/gpu0 71 °C`; empty if none says."""
        since_ns = time.perf_counter_ns() - round(_NOW_S * 1e9)
        latest: dict[str, float] = {}
        with self._lock:
            for one in reversed(self._recent[-_LOOKED_THROUGH:]):
                if one.t_ns < since_ns:
                    break
                if one.field == "temperature_c" and one.value is not None:
                    latest.setdefault(one.entity, one.value)
        if not latest:
            return ""
        card = max(latest, key=lambda name: latest[name])
        return f"hottest {card} {latest[card]:.0f} °C"

    def start(self) -> None:
        """Begin sampling."""
        for lane in self._lanes:
            lane.thread.start()
        self._watch.start()

    def stop(self) -> None:
        """End sampling and write what is left; safe to call twice, waits for no source that hangs.

        Of a signal that stayed as it was, the last moment at which it was seen is written too.
        """
        first = not self.stopping.is_set()
        self.stopping.set()
        if first:
            for lane in self._lanes:
                lane.end()
        deadline = time.monotonic() + self._timeout_s + 1.0
        for thread in (*(lane.thread for lane in self._lanes), self._watch):
            if thread.is_alive():
                thread.join(timeout=max(0.0, deadline - time.monotonic()))
        if first:
            with self._lock:
                self._recent += self._thinning.settled(0, time.perf_counter_ns())
        self.flush()

    def take(self, readings: list[Reading]) -> None:
        """Keep readings from elsewhere, or of a source."""
        with self._lock:
            self._recent += self._thinning.keep(readings)

    def flush(self) -> None:
        """Write the readings that are not on disk yet as one more part."""
        with self._lock:
            fresh = self._recent[self._written :]
            if fresh:
                self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"part-{len(self._parts):04d}.parquet"
                TelemetryTable.from_readings(fresh).write(path)
                moments = [one.t_ns for one in fresh]
                self._parts.append((min(moments), max(moments), path))
            dropped, self._recent = self._recent[:-_KEPT_READINGS], self._recent[-_KEPT_READINGS:]
            self._dropped_until_ns = max([self._dropped_until_ns, *(one.t_ns for one in dropped)])
            self._written = len(self._recent)

    def window(
        self,
        start_ns: int,
        end_ns: int,
        *,
        seen_ns: int | None = None,
        fields: frozenset[str] | None = None,
    ) -> TelemetryTable:
        """Return all readings between two moments, with one interval of margin on each side.

        Signals that seldom change reach back to the last time they were written; until when they stood
        unchanged is written down too. What came after `seen_ns` is left out: whoever asks again, from
        what is on disk, gets the same. With `fields` there are no others: a run of days has few events.
        """
        margin_ns = round(self._interval_s * 1.5e9)
        begin, end = start_ns - margin_ns, end_ns + margin_ns
        end = end if seen_ns is None else min(end, seen_ns)
        back = begin - max(REACH_BACK_NS, margin_ns)
        with self._lock:
            self._recent += self._thinning.settled(back, end)
            recent, fresh = list(self._recent), self._recent[self._written :]
            parts = [path for low, high, path in self._parts if low <= end and high >= back]
            before = [one for one in self._thinning.last() if one.value is None and one.t_ns < back]
            on_disk = self._dropped_until_ns >= back
        tables = [TelemetryTable.read(path, fields) for path in parts] if on_disk else []
        kept = fresh if on_disk else recent
        tables.append(
            TelemetryTable.from_readings(one for one in kept if fields is None or one.field in fields)
        )
        inside = [one.window(back, begin, end) for one in tables]
        return TelemetryTable.concat([TelemetryTable.from_readings(before), *inside])

    def _watching(self) -> None:
        """Say of each source that hangs, once per interval, that it does; write full parts.

        While none hangs it looks a few times in the time that a source may take.
        """
        calm_s = max(self._interval_s, self._timeout_s / 4)
        hanging: list[_Lane] = []
        while not self.stopping.wait(self._interval_s if hanging else calm_s):
            now_ns = time.perf_counter_ns()
            hanging = [lane for lane in self._lanes if lane.overdue(now_ns, self._timeout_s)]
            for lane in hanging:
                waited_s = (now_ns - lane.asked_ns) / 1e9
                text = f"{lane.source.name} has not answered for {waited_s:.0f} s"
                self.take(lane.source.nothing(Reason.TIMEOUT, text))
            if len(self._recent) - self._written > _KEPT_READINGS:
                self.flush()


def _as_source(one: Source | Node, timeout_s: float) -> Source:
    return ExporterSource(one, timeout_s=timeout_s) if isinstance(one, Node) else one
