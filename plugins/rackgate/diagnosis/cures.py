"""The smallest grant or install that makes an input readable; by what was tried and why it failed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from rackgate.metrics.inputs import alternatives
from rackgate.nouns.measurement import Measurement, Reason
from rackgate.nouns.target import Target
from rackgate.probes.tools import tools
from rackgate.telemetry.assembly import card_kind_of, plan_of
from rackgate.telemetry.cards.dcgm_names import counter_line

_PROGRAMS = {"dcgmi": "dcgm", "ib_write_bw": "perftest", "ib_write_lat": "perftest"}
_EXPORTERS = ("exporter", "prometheus")
_OF_THE_INPUT = (Reason.BLANK, Reason.UNSUPPORTED, Reason.NO_PERMISSION, Reason.TOOL_MISSING)
_OF_A_LOOK = (*_OF_THE_INPUT, Reason.ABSENT, Reason.UNREACHABLE, Reason.TIMEOUT, Reason.NOT_CONFIGURED)
_LOOKED_AT = ("card", "host", "kernel_log", "redfish", "tool", "docker")


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


def cure_for(needs: tuple[str, ...], found: Measurement, target: Target) -> str:
    """Return what would give a measurement its value; empty where the inputs of its metric do not tell.

    Of a load, only what is plainly the signal's own: that no request came is not.
    """
    reasons = _OF_THE_INPUT if "samples" in needs else _OF_A_LOOK
    inputs = [one for written in needs for one in alternatives(written) if one.kind in _LOOKED_AT]
    if found.reason not in reasons or not inputs:
        return ""
    if found.reason is Reason.TOOL_MISSING and found.detail.endswith("is not installed"):
        return tool_cure(found.detail.partition(" ")[0])
    first, source = inputs[0], ""
    node = next((one for one in target.nodes if one.name == target.node_of(found.entity)), None)
    if node is not None and first.kind == "card":
        source = card_kind_of(node, plan_of(target))
    name = first.name if len(inputs) == 1 else ""
    return cure_of(first.kind, name, found.reason, source=source, detail=found.detail)


def tool_cure(name: str) -> str:
    """Return how a program is had: as the catalogue of probes says, or our own table."""
    known = {tool.program or tool.name: tool.install for tool in tools().values()}
    known |= {program: tools()[tool].install for program, tool in _PROGRAMS.items()}
    own = _cures()["tool"]
    named = own.get(name) or known.get(name)
    return str(named or f"install {name}, or put it on the PATH of the user who is asked")


@cache
def _cures() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("rackgate.diagnosis").joinpath("cures.toml").read_text("utf-8"))
