"""How far the start of an engine is, read from the end of its log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from rackgate.engines.catalogue import ProgressMark


def silent(text: str) -> None:
    """Take a line of progress and do nothing with it."""
    del text


def latest_mark(log: str, marks: Sequence[ProgressMark]) -> str:
    """Return the text of the mark that stands last in the log, with its share if it tells one; else ""."""
    best, text = -1, ""
    for mark in marks:
        for found in re.finditer(mark.pattern, log):
            if found.end() >= best:
                share = next((value for name, value in found.groupdict().items() if value and name), "")
                best, text = found.end(), f"{mark.text} {share}".strip()
    return text


class ProgressWatch:
    """Tells each step of a start once. `tails` gives the end of the log of each part."""

    def __init__(
        self,
        marks: Sequence[ProgressMark],
        tails: Mapping[str, Callable[[], bytes]],
        tell: Callable[[str], None],
        interval_s: float = 1.0,
    ) -> None:
        self._marks = marks
        self._tails = tails
        self._tell = tell
        self._interval_s = interval_s
        self._start = self._looked = time.monotonic()
        self._told: dict[str, str] = {}

    def look(self) -> None:
        """Read the logs if the interval is over, and tell what is new."""
        now = time.monotonic()
        if not self._marks or self._tell is silent or now - self._looked < self._interval_s:
            return
        self._looked = now
        for name, tail in self._tails.items():
            text = latest_mark(tail().decode("utf-8", "replace"), self._marks)
            if text and self._told.get(name) != text:
                self._told[name] = text
                self._tell(f"{name}: {text} ({now - self._start:.0f} s)")
