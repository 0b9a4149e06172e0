"""Clock synchronization with load machines: offset readings, and conversion of moments to the local clock.

The CLOCK_MONOTONIC of each machine has its own start and its own drift. A reading asks the other clock
between two readings of ours, so the offset is known to half of that round trip. The duration of a request is
a difference on one clock and needs no conversion.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import perf_counter_ns

from rackgate.nouns.decode import decode
from rackgate.nouns.sample import Sample

_MAX_DRIFT = 500e-6
"""NTP slews a clock by at most 500 ppm; a faster change means that the clock was stopped or set."""

_MOMENTS = tuple(
    field.name for field in fields(Sample) if field.name.endswith("_ns") and field.name != "token_ns"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The offset of another machine's clock to ours at `at_ns` on our clock, +/- `uncertainty_ns`."""

    at_ns: int
    offset_ns: int
    uncertainty_ns: int

    @property
    def there_ns(self) -> int:
        """The same moment on the other clock."""
        return self.at_ns + self.offset_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClock:
    """The readings of one machine's clock during a load in order, the last one after its end."""

    machine: str
    readings: tuple[ClockReading, ...]

    @property
    def uncertainty_ms(self) -> float:
        """The largest uncertainty of a reading."""
        return max(reading.uncertainty_ns for reading in self.readings) / 1e6

    @property
    def drift_ms(self) -> float:
        """The last offset minus the first one."""
        return (self.readings[-1].offset_ns - self.readings[0].offset_ns) / 1e6

    def offset_ns(self, there_ns: int) -> int:
        """Return the offset at a moment of the other clock, interpolated linearly between readings."""
        after = bisect_right(self.readings, there_ns, key=lambda reading: reading.there_ns)
        if after in (0, len(self.readings)):
            return self.readings[min(after, len(self.readings) - 1)].offset_ns
        first, second = self.readings[after - 1], self.readings[after]
        share = (there_ns - first.there_ns) / max(1, second.there_ns - first.there_ns)
        return first.offset_ns + round(share * (second.offset_ns - first.offset_ns))

    def here_ns(self, there_ns: int) -> int:
        """Return a moment of the other clock on our clock."""
        return there_ns - self.offset_ns(there_ns)

    def problem(self, limit_ms: float) -> str:
        """Return why moments of this clock are not comparable with other machines', empty if they are."""
        if self.uncertainty_ms > limit_ms:
            text = f"is known to {self.uncertainty_ms:.1f} ms only (accepted {limit_ms:g} ms)"
            return f"the clock of load machine {self.machine} {text}"
        for first, second in zip(self.readings, self.readings[1:], strict=False):
            moved_ns = abs(second.offset_ns - first.offset_ns)
            seconds = (second.at_ns - first.at_ns) / 1e9
            allowed_ns = _MAX_DRIFT * seconds * 1e9 + first.uncertainty_ns + second.uncertainty_ns
            if moved_ns > allowed_ns:
                text = f"went {moved_ns / 1e6:.1f} ms wrong within {seconds:.1f} s"
                return f"the clock of load machine {self.machine} {text}"
        return ""


def measure_clock_offset(ask: Callable[[], int], times: int) -> ClockReading:
    """Return the reading of the shortest of some round trips; `ask` returns the other clock in ns."""

    def once() -> ClockReading:
        before_ns = perf_counter_ns()
        there_ns = ask()
        after_ns = perf_counter_ns()
        middle_ns = (before_ns + after_ns) // 2
        return ClockReading(
            at_ns=middle_ns, offset_ns=there_ns - middle_ns, uncertainty_ns=(after_ns - before_ns + 1) // 2
        )

    return min((once() for _ in range(times)), key=lambda reading: reading.uncertainty_ns)


def on_local_clock(sample: Sample, clock: MachineClock) -> Sample:
    """Return a sample with its moments on our clock, shifted by one offset, so that no duration changes."""
    by_ns = clock.offset_ns(sample.scheduled_ns)
    moments = {name: moment - by_ns for name in _MOMENTS if (moment := getattr(sample, name)) is not None}
    return replace(sample, **moments, token_ns=tuple(moment - by_ns for moment in sample.token_ns))


def clock_path(spool: Path) -> Path:
    """Return the path of the clock readings that belong to a spool."""
    return spool.with_name(f"{spool.name}.clock")


def write_clock(path: Path, clock: MachineClock) -> None:
    """Write the readings atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(asdict(clock)), encoding="utf-8")
    new.replace(path)


def read_clock(path: Path) -> MachineClock | None:
    """Return the readings of a file, None if there is none."""
    try:
        return decode(MachineClock, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
