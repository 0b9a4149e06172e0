"""Cures for missing inputs: the smallest grant, setting or install that makes an input readable."""

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

_TOOL_OF_PROGRAM = {"dcgmi": "dcgm", "ib_write_bw": "perftest", "ib_write_lat": "perftest"}
_EXPORTERS = ("exporter", "prometheus")
_INPUT_REASONS = (Reason.BLANK, Reason.UNSUPPORTED, Reason.NO_PERMISSION, Reason.TOOL_MISSING)
_UNLOADED_REASONS = (
    *_INPUT_REASONS,
    Reason.ABSENT,
    Reason.UNREACHABLE,
    Reason.TIMEOUT,
    Reason.NOT_CONFIGURED,
)
_CURABLE_KINDS = ("card", "host", "kernel_log", "redfish", "tool", "docker")


def cure_of_input(kind: str, name: str, reason: Reason | None, *, source: str = "", detail: str = "") -> str:
    """Return what to do about an input of this kind without a value for this reason; "" if nothing is known.

    `source` is where a card's signals come from. A `detail` that names the grant itself is the cure.
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


def cure_of_measurement(needs: tuple[str, ...], found: Measurement, target: Target) -> str:
    """Return the cure of a missing measurement, from the inputs of its metric; "" if they have none.

    A metric that also needs samples has a cure only for reasons that are the input's own: a load without a
    request is not cured by a grant.
    """
    reasons = _INPUT_REASONS if "samples" in needs else _UNLOADED_REASONS
    inputs = [one for need in needs for one in alternatives(need) if one.kind in _CURABLE_KINDS]
    if found.reason not in reasons or not inputs:
        return ""
    if found.reason is Reason.TOOL_MISSING and found.detail.endswith("is not installed"):
        return install_hint(found.detail.partition(" ")[0])
    first, source = inputs[0], ""
    node = next((one for one in target.nodes if one.name == target.node_of(found.entity)), None)
    if node is not None and first.kind == "card":
        source = card_kind_of(node, plan_of(target))
    name = first.name if len(inputs) == 1 else ""
    return cure_of_input(first.kind, name, found.reason, source=source, detail=found.detail)


def install_hint(name: str) -> str:
    """Return how to install a program: from the cures table, else from the catalogue of tools."""
    known = {tool.program or tool.name: tool.install for tool in tools().values()}
    known |= {program: tools()[tool].install for program, tool in _TOOL_OF_PROGRAM.items()}
    own = _cures()["tool"]
    named = own.get(name) or known.get(name)
    return str(named or f"install {name}, or put it on the PATH of the user who is asked")


@cache
def _cures() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("rackgate.diagnosis").joinpath("cures.toml").read_text("utf-8"))
