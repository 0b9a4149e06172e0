"""The smallest grant or install that makes an input readable; by what was tried and why it failed."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rackgate.measurement import Reason
from rackgate.telemetry.dcgm_names import counter_line

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["cure_of", "tool_cure"]

_EXPORTERS = ("exporter", "prometheus")


def cure_of(kind: str, name: str, reason: Reason | None, *, source: str = "", detail: str = "") -> str:
    """Return what to do about an input of this kind that gave no value for this reason.

    `source` is where a card's signals come from. What was said itself names the grant in some cases: then
    it needs no other.
    """
    if kind == "card" and name and source in _EXPORTERS and reason is Reason.ABSENT:
        line = counter_line(name)
        if line is not None:
            return f"add to dcgm-exporter's counter list (--collectors): {line}"
    if "it needs " in detail or "add this user to" in detail:
        return (detail.partition("it needs ")[2] or detail).strip()
    table = _cures().get(kind, {})
    keys = (f"{source}.{reason}", str(reason), "any")
    return next((str(table[key]) for key in keys if key in table), "")


def tool_cure(name: str) -> str:
    """Return how a program is had."""
    return str(_cures()["tool"].get(name, f"install {name}, or put it on the PATH of the user who is asked"))


@cache
def _cures() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("rackgate.doctor").joinpath("cures.toml").read_text("utf-8"))
