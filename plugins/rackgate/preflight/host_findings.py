"""Findings on hosts: triage steps, warnings, clocks and differences between nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackgate.hosts.facts.clock import distance_s
from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.finding import HostFinding
from rackgate.hosts.facts.node_differences import outliers, splits
from rackgate.hosts.facts.triage import STEPS, host_findings
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.host_metrics import measured, not_measured, of_group


def probe_hosts(facts: Mapping[str, Mapping[str, Fact]], demands: Mapping[str, HostDemands]) -> ProbeResults:
    """Return findings and clocks of each node; `demands` are the target's demands by node."""
    found: ProbeResults = {}
    for node, known in facts.items():
        unread = _unread(known)
        if unread is not None:
            nothing = (*of_group("triage"), "host_warnings", "clock_offset_s", "clock_distance_s")
            found |= {(name, node): _not_read(name, node, unread) for name in nothing}
            continue
        findings = host_findings(known, demands.get(node, HostDemands()))
        for step in STEPS:
            found[f"host_{step}", node] = _judged_step(step, node, findings)
        found["host_warnings", node] = _warnings(node, findings)
        found["clock_offset_s", node] = _offset(node, known["clock_offset_s"])
        found["clock_distance_s", node] = _distance(node, known["clock_to_ours"])
    return found


def probe_same(
    facts: Mapping[str, Mapping[str, Fact]], compared: Mapping[str, Mapping[str, Fact]]
) -> ProbeResults:
    """Return the facts in which each node differs from most, and for the rack those without a majority.

    `compared` are the comparable facts by node, a part of `facts`.
    """
    found: ProbeResults = {}
    different, open_ = outliers(compared), splits(compared)
    read = [node for node, known in facts.items() if _unread(known) is None]
    for node, known in facts.items():
        unread = _unread(known)
        if unread is not None:
            found["host_outliers", node] = _not_read("host_outliers", node, unread)
            continue
        mine = [one for one in different if one.node == node]
        text = "; ".join(f"{one.fact} {one.value}, others {one.others} ({one.share})" for one in mine)
        found["host_outliers", node] = measured("host_outliers", node, len(mine), text)
    if len(facts) > 1:
        said = [
            f"{one.fact}: " + ", ".join(f"{value} on {' '.join(on)}" for value, on in one.values.items())
            for one in open_
        ]
        name, text = "facts_split", "; ".join(said)
        few = f"fewer than two nodes could be read: {', '.join(read) or 'none'}"
        found[name, "rack"] = (
            measured(name, "rack", len(said), text)
            if len(read) > 1
            else not_measured(name, "rack", Reason.TOO_FEW, few)
        )
    return found


def _judged_step(step: str, node: str, findings: Iterable[HostFinding]) -> Measurement:
    """Return the number of FAIL findings of a step; no value if there is none and a fact was unread."""
    mine = [one for one in findings if one.step == step]
    failed = [one for one in mine if one.verdict is Verdict.FAIL]
    unknown = [one for one in mine if one.verdict is Verdict.UNKNOWN and one.at_worst is Verdict.FAIL]
    name = f"host_{step}"
    if unknown and not failed:
        return not_measured(name, node, Reason.ABSENT, _words(unknown))
    return measured(name, node, len(failed), _words(failed))


def _warnings(node: str, findings: Iterable[HostFinding]) -> Measurement:
    """Return the number of WARN findings; no value if there is none and a fact was unread."""
    mine = [one for one in findings if one.at_worst is Verdict.WARN]
    warned = [one for one in mine if one.verdict is Verdict.WARN]
    if mine and not warned:
        return not_measured("host_warnings", node, Reason.ABSENT, _words(mine))
    return measured("host_warnings", node, len(warned), _words(warned))


def _words(findings: Iterable[HostFinding]) -> str:
    return "; ".join(f"{one.step}: {one.text}. {one.next_step}" for one in findings)


def _unread(known: Mapping[str, Fact]) -> Fact | None:
    """Return the fact that shows that the host was not read at all."""
    kernel = known.get("kernel")
    return kernel if kernel is not None and kernel.value is None else None


def _not_read(name: str, node: str, fact: Fact) -> Measurement:
    return not_measured(name, node, fact.reason, fact.detail)


def _offset(node: str, fact: Fact) -> Measurement:
    name = "clock_offset_s"
    if fact.value is None:
        return not_measured(name, node, fact.reason, fact.detail)
    return measured(name, node, abs(float(fact.value)), fact.detail)


def _distance(node: str, fact: Fact) -> Measurement:
    name, exchanged = "clock_distance_s", distance_s(fact)
    if exchanged is None:
        return not_measured(name, node, fact.reason, fact.detail)
    offset, bound, proven = exchanged
    text = f"the node's clock - ours = {offset * 1e3:.2f} ms, good to {bound * 1e3:.2f} ms"
    return measured(name, node, proven, text)
