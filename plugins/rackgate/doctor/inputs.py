"""One input of a check at one place -> whether it is there, else why not and what would cure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rackgate.diagnosis.cures import cure_of_input, install_hint
from rackgate.doctor.asking import Engineered
from rackgate.doctor.examination import Examination
from rackgate.metrics.inputs import Input
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.telemetry.assembly import card_kind_of, plan_of
from rackgate.telemetry.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of one input. `source` tells which input it was, in the words of the metric."""

    ok: bool
    text: str = ""
    cure: str = ""


_GOOD = Tried(ok=True)
_KILLABLE = ("process", "container", "kubernetes", "simulated")


def try_input(one: Input, place: str, seen: Examination) -> Tried:
    """Return what an examination says of an input at a card, a node, an engine or the rack."""
    return _TRIALS[one.kind](one, place, seen)


def _late(kind: str, place: str, seen: Examination) -> Tried:
    text = f"{place} did not answer within {seen.deadline_s:g} s"
    return Tried(ok=False, text=text, cure=cure_of_input(kind, "", Reason.TIMEOUT))


def _card(one: Input, place: str, seen: Examination) -> Tried:
    node = _node(place, seen)
    if node is None or node.name not in seen.readings:
        return _late("card", node.name if node else place, seen)
    source = card_kind_of(node, plan_of(seen.target))
    mine = {reading.field: reading for reading in seen.readings[node.name][0] if reading.entity == place}
    if not any(reading.value is not None for reading in mine.values()):
        first = next(iter(mine.values()), None)
        reason = first.reason if first else Reason.ABSENT
        detail = first.detail if first else f"the source of {node.name} says nothing of this card"
        return Tried(
            ok=False, text=detail, cure=cure_of_input("card", "", reason, source=source, detail=detail)
        )
    return _GOOD if not one.name else _reading("card", one.name, mine.get(one.name), source)


def _reading(kind: str, name: str, reading: Reading | None, source: str) -> Tried:
    if reading is not None and reading.value is not None:
        return _GOOD
    reason = reading.reason if reading is not None else Reason.ABSENT
    detail = reading.detail if reading is not None else f"no value of {name} comes from the {source}"
    cure = cure_of_input(kind, name, reason, source=source, detail=detail)
    return Tried(ok=False, text=detail or f"{name}: {reason}", cure=cure)


def _host(one: Input, place: str, seen: Examination) -> Tried:
    node = _node(place, seen)
    if node is None or not node.access.reaches_host:
        text = f"no way into the host of {place} is declared"
        return Tried(ok=False, text=text, cure=cure_of_input("host", "", Reason.NOT_CONFIGURED))
    facts = seen.facts.get(node.name)
    if facts is None:
        return _late("host", place, seen)
    fact = facts.get(one.name)
    if not one.name or (fact is not None and fact.value is not None):
        return _GOOD
    if fact is None:
        return Tried(ok=False, text=f"nobody reads {one.name} from hosts")
    cure = cure_of_input("host", one.name, fact.reason, detail=fact.detail)
    if fact.reason is Reason.TOOL_MISSING:
        cure = install_hint(fact.detail.partition(" ")[0])
    return Tried(ok=False, text=fact.detail, cure=cure)


def _kernel_log(_: Input, place: str, seen: Examination) -> Tried:
    node = _node(place, seen)
    if node is None or not (node.access.reaches_host or node.access.kernel_log):
        text = f"no way to the kernel log of {place} is declared"
        return Tried(ok=False, text=text, cure=cure_of_input("kernel_log", "", Reason.NOT_CONFIGURED))
    log = seen.logs.get(node.name)
    if log is None:
        return _late("kernel_log", place, seen)
    problem = log[1]
    if not problem:
        return _GOOD
    if node.access.reaches_host and node.access.kernel_log is None:
        lost = _host(Input("host", "kernel"), place, seen)
        if not lost.ok:  # the node says nothing at all: no group would cure that
            return Tried(ok=False, text=problem, cure=lost.cure)
    return Tried(ok=False, text=problem, cure=cure_of_input("kernel_log", "", None, detail=problem))


def _redfish(one: Input, place: str, seen: Examination) -> Tried:
    node = _node(place, seen)
    if node is None or node.access.redfish is None:
        text = f"no management controller of {place} is declared"
        return Tried(ok=False, text=text, cure=cure_of_input("redfish", "", Reason.NOT_CONFIGURED))
    if node.name not in seen.chassis:
        return _late("redfish", place, seen)
    said = {reading.field: reading for reading in seen.chassis[node.name]}
    return _GOOD if not one.name else _reading("redfish", one.name, said.get(one.name), "controller")


def _tool(one: Input, place: str, seen: Examination) -> Tried:
    node = _node(place, seen)
    if node is None or not node.access.reaches_host:
        text = f"no way into the host of {place} is declared"
        return Tried(ok=False, text=text, cure=cure_of_input("host", "", Reason.NOT_CONFIGURED))
    if (node.name, one.name) not in seen.tools:
        return _late("host", place, seen)
    if seen.tools[node.name, one.name]:
        return _GOOD
    return Tried(ok=False, text=f"{one.name} is not on the PATH of {place}", cure=install_hint(one.name))


def _docker(_: Input, place: str, seen: Examination) -> Tried:
    facts = seen.facts.get(place)
    if facts is None:
        return _late("docker", place, seen)
    fact = facts["docker_runtimes"]
    if fact.value is not None:
        return _GOOD
    return Tried(
        ok=False, text=fact.detail, cure=cure_of_input("docker", "", fact.reason, detail=fact.detail)
    )


def _engine(_: Input, place: str, seen: Examination) -> Tried:
    return _served("engine", place, seen.engines.get(place), seen)


def _samples(one: Input, place: str, seen: Examination) -> Tried:
    machines, found = seen.target.load_machines, seen.load_machines
    if machines is not None and found is None:
        text = f"{machines.ray} did not answer within {seen.deadline_s:g} s"
        return Tried(ok=False, text=text, cure="see the route to [load_machines] ray")
    if found is not None and not found.ok:
        return Tried(ok=False, text=found.text, cure=found.cure)
    return _engine(one, place, seen)


def _gateway(_: Input, place: str, seen: Examination) -> Tried:
    return _served("gateway", place, seen.gateway, seen)


def _served(kind: str, place: str, answer: Engineered | None, seen: Examination) -> Tried:
    if answer is None:
        return _late(kind, place, seen)
    return Tried(ok=answer.ok, text=answer.text, cure=answer.cure)


def _fault(_: Input, __: str, seen: Examination) -> Tried:
    able = [spec for spec in seen.target.engines if spec.launcher in _KILLABLE or "pods" in spec.settings]
    if able:
        return _GOOD
    text = "no engine can be killed from here: they are found running"
    return Tried(ok=False, text=text, cure=cure_of_input("fault", "", None))


def _batch(_: Input, __: str, seen: Examination) -> Tried:
    from shutil import which

    batch = seen.target.batch
    if batch is None or which(batch.command[0]):
        return _GOOD
    text = f"{batch.command[0]} of [batch] is not on the PATH"
    return Tried(ok=False, text=text, cure=cure_of_input("batch", "", None))


def _prices(_: Input, __: str, seen: Examination) -> Tried:
    prices = seen.target.prices
    if prices is not None and (prices.card_hour is not None or prices.kwh is not None):
        return _GOOD
    text = "the target has no [prices]: card_hour, kwh"
    return Tried(ok=False, text=text, cure=cure_of_input("prices", "", None))


def _instrument(_: Input, __: str, ___: Examination) -> Tried:
    return _GOOD


def _node(place: str, seen: Examination) -> Node | None:
    name = seen.target.node_of(place)
    return next((node for node in seen.target.nodes if node.name == name), None)


_TRIALS: Mapping[str, Callable[[Input, str, Examination], Tried]] = {
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
"""Each kind of input and how it is looked up."""
