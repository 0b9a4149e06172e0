"""A single NVML call: its value, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pynvml import NVMLError

from rackgate.nouns.measurement import Reason

BLANK_INTEGERS = frozenset({2**32 - 1, 2**64 - 1})
"""What NVML gives where it has no value and says that all is well."""

REASONS = {
    3: Reason.UNSUPPORTED,
    4: Reason.NO_PERMISSION,
    6: Reason.ABSENT,
    9: Reason.NOT_CONFIGURED,
    10: Reason.TIMEOUT,
    12: Reason.TOOL_MISSING,
    13: Reason.UNSUPPORTED,
    15: Reason.DIED,
    16: Reason.DIED,
    18: Reason.NOT_CONFIGURED,
    22: Reason.UNSUPPORTED,
    28: Reason.ABSENT,
}
"""What each return code of NVML means; another one is our own trouble."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: a value, or why there is none. `code` is NVML's return code."""

    value: float | None
    reason: Reason | None = None
    detail: str = ""
    code: int = 0


def ask(what: str, call: Callable[[], Any], factor: float = 1.0) -> Asked:
    """Return what a call gives times `factor`; an NVML error is the reason why there is no value."""
    value, refused = attempt(what, call)
    if refused is not None:
        return refused
    if type(value) is Asked:
        return value
    if value in BLANK_INTEGERS:
        return Asked(None, Reason.BLANK, f"{what}: NVML gives its blank value")
    return Asked(float(value) * factor)


def attempt(what: str, call: Callable[[], Any]) -> tuple[Any, Asked | None]:
    """Return (what a call gives, None), or (None, why it was refused)."""
    try:
        return call(), None
    except AttributeError:
        return None, Asked(
            None, Reason.UNSUPPORTED, f"{what}: the installed nvidia-ml-py has no such call", 13
        )
    except NVMLError as error:
        reason = REASONS.get(error.value, Reason.INSTRUMENT)
        return None, Asked(None, reason, f"{what}: {error}", error.value)
