"""Checks whether one input of a metric is available at a place, and the cure if it is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shutil import which

from rackgate.diagnosis.cures import cure_of_input, install_hint
from rackgate.doctor.queries import Readiness
from rackgate.doctor.snapshot import Snapshot
from rackgate.metrics.inputs import Input
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.assembly import card_kind_of, plan_of
from rackgate.telemetry.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCheck:
    """Whether an input is available; if not, why (`text`) and what would make it so (`cure`)."""

    ok: bool
    text: str = ""
    cure: str = ""


_OK = InputCheck(ok=True)
_KILLABLE = ("process", "container", "kubernetes", "simulated")


def check_input(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    """Return the availability of an input at a card, a node, an engine or the rack."""
    return _CHECKS[needed.kind](needed, place, snapshot)


def _late(kind: str, place: str, snapshot: Snapshot) -> InputCheck:
    text = f"{place} did not answer within {snapshot.deadline_s:g} s"
    return InputCheck(ok=False, text=text, cure=cure_of_input(kind, "", Reason.TIMEOUT))


def _undeclared(kind: str, text: str) -> InputCheck:
    return InputCheck(ok=False, text=text, cure=cure_of_input(kind, "", Reason.NOT_CONFIGURED))


def _card(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    node = _node(place, snapshot)
    if node is None or node.name not in snapshot.readings:
        return _late("card", node.name if node else place, snapshot)
    source = card_kind_of(node, plan_of(snapshot.target))
    readings, _ = snapshot.readings[node.name]
    by_field = {reading.field: reading for reading in readings if reading.entity == place}
    if not any(reading.value is not None for reading in by_field.values()):
        first = next(iter(by_field.values()), None)
        reason = first.reason if first else Reason.ABSENT
        detail = first.detail if first else f"the source of {node.name} says nothing of this card"
        cure = cure_of_input("card", "", reason, source=source, detail=detail)
        return InputCheck(ok=False, text=detail, cure=cure)
    return _signal(needed, by_field, source)


def _signal(needed: Input, by_field: Mapping[str, Reading], source: str) -> InputCheck:
    reading = by_field.get(needed.name)
    if not needed.name or (reading is not None and reading.value is not None):
        return _OK
    reason = reading.reason if reading is not None else Reason.ABSENT
    detail = reading.detail if reading is not None else f"no value of {needed.name} comes from the {source}"
    cure = cure_of_input(needed.kind, needed.name, reason, source=source, detail=detail)
    return InputCheck(ok=False, text=detail or f"{needed.name}: {reason}", cure=cure)


def _host(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    node = _node(place, snapshot)
    if node is None or not node.access.reaches_host:
        return _undeclared("host", f"no way into the host of {place} is declared")
    facts = snapshot.facts.get(node.name)
    if facts is None:
        return _late("host", place, snapshot)
    fact = facts.get(needed.name)
    if not needed.name or (fact is not None and fact.value is not None):
        return _OK
    if fact is None:
        return InputCheck(ok=False, text=f"nobody reads {needed.name} from hosts")
    if fact.reason is Reason.TOOL_MISSING:
        cure = install_hint(fact.detail.partition(" ")[0])
    else:
        cure = cure_of_input("host", needed.name, fact.reason, detail=fact.detail)
    return InputCheck(ok=False, text=fact.detail, cure=cure)


def _kernel_log(_: Input, place: str, snapshot: Snapshot) -> InputCheck:
    node = _node(place, snapshot)
    if node is None or not (node.access.reaches_host or node.access.kernel_log):
        return _undeclared("kernel_log", f"no way to the kernel log of {place} is declared")
    if node.name not in snapshot.logs:
        return _late("kernel_log", place, snapshot)
    problem = snapshot.logs[node.name][1]
    if not problem:
        return _OK
    if node.access.reaches_host and node.access.kernel_log is None:
        host = _host(Input("host", "kernel"), place, snapshot)
        if not host.ok:  # the whole host is silent: membership in a group would not cure that
            return InputCheck(ok=False, text=problem, cure=host.cure)
    return InputCheck(ok=False, text=problem, cure=cure_of_input("kernel_log", "", None, detail=problem))


def _redfish(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    node = _node(place, snapshot)
    if node is None or node.access.redfish is None:
        return _undeclared("redfish", f"no management controller of {place} is declared")
    if node.name not in snapshot.chassis:
        return _late("redfish", place, snapshot)
    by_field = {reading.field: reading for reading in snapshot.chassis[node.name]}
    return _signal(needed, by_field, "controller")


def _tool(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    node = _node(place, snapshot)
    if node is None or not node.access.reaches_host:
        return _undeclared("host", f"no way into the host of {place} is declared")
    if (node.name, needed.name) not in snapshot.tools:
        return _late("host", place, snapshot)
    if snapshot.tools[node.name, needed.name]:
        return _OK
    text = f"{needed.name} is not on the PATH of {place}"
    return InputCheck(ok=False, text=text, cure=install_hint(needed.name))


def _docker(_: Input, place: str, snapshot: Snapshot) -> InputCheck:
    facts = snapshot.facts.get(place)
    if facts is None:
        return _late("docker", place, snapshot)
    fact = facts["docker_runtimes"]
    if fact.value is not None:
        return _OK
    cure = cure_of_input("docker", "", fact.reason, detail=fact.detail)
    return InputCheck(ok=False, text=fact.detail, cure=cure)


def _engine(_: Input, place: str, snapshot: Snapshot) -> InputCheck:
    return _ready("engine", place, snapshot.engines.get(place), snapshot)


def _samples(needed: Input, place: str, snapshot: Snapshot) -> InputCheck:
    declared, machines = snapshot.target.load_machines, snapshot.load_machines
    if declared is not None and machines is None:
        text = f"{declared.ray} did not answer within {snapshot.deadline_s:g} s"
        return InputCheck(ok=False, text=text, cure="see the route to [load_machines] ray")
    if machines is not None and not machines.ok:
        return InputCheck(ok=False, text=machines.text, cure=machines.cure)
    return _engine(needed, place, snapshot)


def _gateway(_: Input, place: str, snapshot: Snapshot) -> InputCheck:
    return _ready("gateway", place, snapshot.gateway, snapshot)


def _ready(kind: str, place: str, readiness: Readiness | None, snapshot: Snapshot) -> InputCheck:
    if readiness is None:
        return _late(kind, place, snapshot)
    return InputCheck(ok=readiness.ok, text=readiness.text, cure=readiness.cure)


def _fault(_: Input, __: str, snapshot: Snapshot) -> InputCheck:
    engines = snapshot.target.engines
    if any(spec.launcher in _KILLABLE or "pods" in spec.settings for spec in engines):
        return _OK
    text = "no engine can be killed from here: they are found running"
    return InputCheck(ok=False, text=text, cure=cure_of_input("fault", "", None))


def _batch(_: Input, __: str, snapshot: Snapshot) -> InputCheck:
    batch = snapshot.target.batch
    if batch is None or which(batch.command[0]):
        return _OK
    text = f"{batch.command[0]} of [batch] is not on the PATH"
    return InputCheck(ok=False, text=text, cure=cure_of_input("batch", "", None))


def _prices(_: Input, __: str, snapshot: Snapshot) -> InputCheck:
    prices = snapshot.target.prices
    if prices is not None and (prices.card_hour is not None or prices.kwh is not None):
        return _OK
    text = "the target has no [prices]: card_hour, kwh"
    return InputCheck(ok=False, text=text, cure=cure_of_input("prices", "", None))


def _instrument(_: Input, __: str, ___: Snapshot) -> InputCheck:
    return _OK


def _node(place: str, snapshot: Snapshot) -> Node | None:
    name = snapshot.target.node_of(place)
    return next((node for node in snapshot.target.nodes if node.name == name), None)


_CHECKS: Mapping[str, Callable[[Input, str, Snapshot], InputCheck]] = {
    "samples": _samples,
    "engine": _engine,
    "gateway": _gateway,
    "card": _card,
    "host": _host,
    "kernel_log": _kernel_log,
    "redfish": _redfish,
    "tool": _tool,
    "docker": _docker,
    "fault": _fault,
    "batch": _batch,
    "instrument": _instrument,
    "prices": _prices,
}
"""The check of each kind of input."""
