"""Joins driver messages that span several lines of the kernel log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rackgate.telemetry.kernel.log_line import LogLine, parse_lines

# The first words of such messages, and the word that ends each.
_FOLDED = (
    ("NVRM: API mismatch", "same version"),
    ("NVRM: The NVIDIA GPU ", "responding to commands"),
    ("NVRM: This can occur when a driver", "NVIDIA device(s)"),
)
_LONGEST = 8


def unfinished(lines: Iterable[str]) -> bool:
    """Return whether a log ends inside a message that the driver breaks into several lines."""
    last = list(parse_lines(list(lines)[-_LONGEST:]))
    for number, line in enumerate(last):
        end = next((end for begin, end in _FOLDED if line.text.startswith(begin)), None)
        if end is not None and end not in " ".join(later.text for later in last[number:]):
            return True
    return False


def unfolded(lines: list[LogLine]) -> list[LogLine]:
    """Join what the driver broke: the following NVRM lines, across lines of others, up to the end word."""
    joined: list[LogLine] = []
    used: set[int] = set()
    for number, line in enumerate(lines):
        if number in used:
            continue
        end = next((end for begin, end in _FOLDED if line.text.startswith(begin)), None)
        text = line.text
        for later in range(number + 1, min(number + 1 + _LONGEST, len(lines))):
            if end is None or end in text:
                break
            follows = lines[later].text
            if not follows.startswith("NVRM: ") or any(follows.startswith(begin) for begin, _ in _FOLDED):
                continue
            text += " " + follows.removeprefix("NVRM: ").strip()
            used.add(later)
        joined.append(replace(line, text=text))
    return joined
