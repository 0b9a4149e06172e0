"""A verdict as a mark: a shape, a word and a colour, never the colour alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackgate_reports.digest.checks import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping


SPRITE = (
    '<svg class="sprite" width="0" height="0" aria-hidden="true"><defs>'
    '<symbol id="i-pass" viewBox="0 0 16 16"><path d="M3 8.6 6.5 12 13 4.6"/></symbol>'
    '<symbol id="i-warn" viewBox="0 0 16 16"><path d="M8 2.2 14.6 13.6H1.4ZM8 6.4V9.6M8 11.4v.4"/></symbol>'
    '<symbol id="i-unknown" viewBox="0 0 16 16">'
    '<path d="M5 5.7C5 3.9 6.3 3 8 3s3 1 3 2.6C11 7.6 8 7.7 8 9.8M8 12.6v.4"/></symbol>'
    '<symbol id="i-fail" viewBox="0 0 16 16"><path d="M4 4 12 12M12 4 4 12"/></symbol>'
    '<symbol id="i-gated" viewBox="0 0 16 16"><path d="M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11'
    'M4.2 4.2 11.8 11.8"/></symbol>'
    '<symbol id="i-none" viewBox="0 0 16 16"><path d="M4 8H12"/></symbol>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="hatch-line" d="M0 0V6"/></pattern>'
    "</defs></svg>"
)
"""Shapes that are used by reference; once per document."""

_SHAPES = {
    "PASS": "pass",
    "WARN": "warn",
    "UNKNOWN": "unknown",
    "FAIL": "fail",
    "gated": "gated",
    "no_record": "unknown",
    "declared": "none",
    "not_assessed": "none",
}


def icon(name: str) -> str:
    """Return the shape of a verdict or status."""
    return f'<svg class="i" aria-hidden="true"><use href="#i-{_SHAPES.get(name, "none")}"/></svg>'


def badge(verdict: str, status: str = "") -> str:
    """Return the mark of a verdict; a check that was not judged shows why instead.

    What is no verdict is shown as UNKNOWN, whatever it says.
    """
    if status in STATUSES:
        return f'<span class="badge t-{status}">{icon(status)}{STATUSES[status]}</span>'
    known = verdict if verdict in _SHAPES else "UNKNOWN"
    return f'<span class="badge t-{known.lower()}">{icon(known)}{known}</span>'


def counts_bar(counts: Mapping[str, int]) -> str:
    """Return a bar whose parts are as wide as their counts."""
    total = sum(counts.values())
    parts: list[str] = []
    x = 0.0
    for name, number in counts.items():
        width = 100 * number / max(1, total)
        parts.append(f'<rect class="fill-{name.lower()}" x="{x:.2f}" width="{width:.2f}" height="6"/>')
        x += width
    return (
        f'<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `2 FAIL · 11 PASS · 3 gated`."""
    return " · ".join(f"{number:,} {STATUSES.get(name, name)}" for name, number in counts.items())
