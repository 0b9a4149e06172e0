"""Payloads of records: a check, a verdict, a gate, a target or an acceptance as plain data."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import asdict
from typing import Any

from rackgate.config.acceptance_file import Acceptance
from rackgate.diagnosis.chain import Chain
from rackgate.evidence.record import digest_of
from rackgate.evidence.redaction import Redactor
from rackgate.judging.ledger import Gate
from rackgate.judging.message import hint_of
from rackgate.nouns.entities import members_of
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Check
from rackgate.nouns.target import Target
from rackgate.nouns.verdict import Judgement


def check_entry(check: Check, definition: str) -> dict[str, Any]:
    """Return a check as the `plan` record lists it; `definition` is the metric's."""
    slo = check.slo
    return {
        "id": check.id,
        "slo": slo.id,
        "stage": slo.stage,
        "entity": check.entity,
        "metric": slo.metric,
        "statistic": slo.statistic,
        "unit": slo.unit,
        "op": str(slo.op),
        "bound": slo.bound,
        "limit": slo.limit,
        "severity": str(slo.severity),
        "scope": str(slo.scope),
        "load": slo.load,
        "window": slo.window,
        "source": slo.source,
        "hint": slo.hint,
        "clauses": list(slo.clauses),
        "definition": definition,
        "declared_absent": check.declared_absent,
        "not_assessed": check.not_assessed,
    }


def verdict_entry(
    check: Check,
    measurement: Measurement,
    judgement: Judgement,
    definition: str,
    chain: Chain | None,
) -> dict[str, Any]:
    """Return a verdict with all that it rests on; `slo_source` is the bound's, `measured_by` the value's.

    `diagnosis` lists the links of an unmet check's chain, the outermost first; `cause` names the known
    failure behind them, `layer` where that lives.
    """
    asked = check_entry(check, definition)
    for name in ("declared_absent", "not_assessed"):
        asked.pop(name)
    asked["check"] = asked.pop("id")
    asked["slo_source"] = asked.pop("source")
    measured = asdict(measurement)
    measured["measured_by"] = measured.pop("source")
    measured["reason"] = judgement.reason
    measured["detail"] = judgement.detail or measurement.detail
    measured["hint"] = hint_of(check, measurement, judgement)
    return {
        **asked,
        **measured,
        "verdict": str(judgement.verdict),
        "margin": judgement.margin,
        "layer": str(chain.layer) if chain else "",
        "cause": chain.leading.name if chain and chain.leading else "",
        "diagnosis": [asdict(link) for link in chain.links] if chain else [],
    }


def gate_entry(gate: Gate, target: Target, message: str) -> dict[str, Any]:
    """Return what a verdict takes out of the run; `message` is the verdict's own."""
    behind = members_of(gate.entity, target) if gate.entity else frozenset()
    return {
        "entity": gate.entity,
        "stages": list(gate.stages),
        "by": gate.by,
        "verdict": str(gate.verdict),
        "takes_out": sorted({gate.entity, *behind}) if gate.entity else [],
        "text": f"{gate.entity or 'later stages'} taken out: {message.splitlines()[0]}",
    }


def target_entry(target: Target) -> dict[str, Any]:
    """Return the target as it stands in the first record, with a digest of all its facts."""
    facts = asdict(target)
    engines = [
        {**asdict(engine), "entity": engine.entity, "cards": list(engine.cards), "nodes": list(engine.nodes)}
        for engine in target.engines
    ]
    return {**facts, "engines": engines, "digest": digest_of(facts)}


def acceptance_entry(acceptance: Acceptance) -> dict[str, Any]:
    """Return what was agreed as it stands in the first record: the files, and the loads in full."""
    return {
        "acceptance": {
            "files": list(acceptance.files),
            "digest": acceptance.digest,
            "overrides": [asdict(override) for override in acceptance.overrides],
        },
        "loads": {name: asdict(load) for name, load in acceptance.loads.items()},
    }


def host_entry() -> dict[str, Any]:
    """Return the name, kernel and cores of this machine."""
    return {"node": socket.gethostname(), "kernel": platform.release(), "cores": os.cpu_count()}


def masked(value: Any, redactor: Redactor) -> Any:
    """Return plain data with secrets taken out of every text, keys included."""
    if isinstance(value, str):
        return redactor.redact(str(value))
    if isinstance(value, dict):
        return {masked(key, redactor): masked(item, redactor) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, redactor) for item in value]
    return value
