"""Format values for readers: three significant digits, units, signs and plurals."""

from __future__ import annotations

import math
import re
from typing import Any

from rackgate.evidence.redaction import printable
from rackgate_reports.titles import title_of

_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_NONE = "\N{EN DASH}"
_TRUTH = ("no", "yes")
_WHITE = re.compile(rf"[^\S{_SPACE}]+")
_SIGNS = {"<=": "≤", ">=": "≥", "==": "="}


def clip(text: Any, limit_characters: int = 400) -> str:
    """Return the text on one line, with control characters as escapes, cut with a note of what is missing."""
    source = str(text if text is not None else "")
    whole = _WHITE.sub(" ", printable(source[: 4 * limit_characters])).strip()
    missing = (len(whole) if len(source) <= 4 * limit_characters else len(source)) - limit_characters
    return whole if missing <= 0 else f"{whole[:limit_characters].rstrip()} … ({missing:,} more characters)"


def _digits(value: float, significant: int) -> str:
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    decimals = max(0, significant - 1 - magnitude)
    if decimals > 9:
        return f"{value:.{significant - 1}e}"
    text = f"{value:,.{decimals}f}"
    return text.replace("-", _MINUS)


def amount(value: float | None, unit: str = "", *, beside: float | None = None) -> str:
    """Return a value with its unit: three significant digits, more where needed to differ from `beside`.

    None is a dash, infinity is ∞, a value of the unit `bool` is yes or no.
    """
    if value is None:
        return _NONE
    if unit == "bool" and value in (0, 1):
        return _TRUTH[int(value)]
    if math.isinf(value):
        text = f"{_MINUS if value < 0 else ''}∞"
    elif value == int(value) and abs(value) < 1e6:
        text = f"{int(value):,}".replace("-", _MINUS)
    else:
        significant = 3
        while beside is not None and value != beside and significant < 9:
            if _digits(value, significant) != _digits(beside, significant):
                break
            significant += 1
        text = _digits(value, significant)
    return f"{text}{_SPACE}{unit}" if unit else text


def limit(op: Any, bound: float | None, unit: str = "") -> str:
    """Return a bound such as `≤ 500 ms`."""
    if bound is None:
        return _NONE
    sign = _SIGNS.get(str(op), "?")
    return f"{sign}{_SPACE}{_exact(bound, unit)}"


def _exact(value: float, unit: str) -> str:
    if math.isinf(value) or unit == "bool":
        return amount(value, unit)
    text = f"{value:,.10g}" if abs(value) < 1e12 else f"{value:g}"
    text = text.replace("-", _MINUS)
    return f"{text}{_SPACE}{unit}" if unit else text


def margin(value: float | None) -> str:
    """Return a margin, a share of the bound, in percent with its sign."""
    if value is None:
        return _NONE
    sign = _MINUS if value < 0 else "+" if value > 0 else ""
    if math.isinf(value):
        return f"{sign}∞{_SPACE}%"
    percent = abs(value) * 100
    decimals = 1 if percent < 10 and percent != round(percent) else 0
    return f"{sign}{percent:,.{decimals}f}{_SPACE}%"


def as_shown(metric: Any, value: float | None, unit: str) -> tuple[float | None, str]:
    """Return value and unit for display: an error rate in percent, other metrics as recorded."""
    if metric == "error_rate" and unit in ("ratio", "1", ""):
        return (None if value is None else value * 100), "%"
    return value, unit


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return _NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f}{_SPACE}ms"
    if seconds < 60:
        return f"{seconds:.1f}{_SPACE}s"
    parts: list[str] = []
    rest = round(seconds)
    for size_s, name in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        whole, rest = divmod(rest, size_s)
        if whole:
            parts.append(f"{whole}{_SPACE}{name}")
    return " ".join(parts[:2])


def count(number: Any) -> str:
    """Return a whole number with separators; a dash for none."""
    return f"{number:,}" if isinstance(number, int) and not isinstance(number, bool) else _NONE


def plural(number: int, noun: str) -> str:
    """Return `1 check`, `2 checks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_upper(text: str) -> str:
    """Return the text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]


def stage_name(stage: Any) -> str:
    """Return a stage as a title: `single_card` becomes `Single card`."""
    return first_upper(clip(stage, 60).replace("_", " "))


def metric_name(metric: Any, statistic: Any = "value") -> str:
    """Return the title of a metric with its statistic: `TTFT P99`, `Error rate`."""
    name, text = clip(title_of(str(metric)), 80), clip(statistic or "value", 20)
    return name if text == "value" else f"{name} {text.upper() if text[:1] == 'p' else text}"
