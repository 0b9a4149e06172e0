"""Runs the probes that the rows of a stage ask for, and records and measures their answers."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict

from rackgate.nouns.measurement import ProbeResults
from rackgate.nouns.slo import Scope
from rackgate.probes.measurements import measurements_of
from rackgate.probes.probe import Answer, Probe, probe_of
from rackgate.probes.running import ONCE, busy_cards, run_on_nodes
from rackgate.run.run import Run

_LOG_CHARACTERS = 1 << 20


def run_probes(run: Run, stage: str, *, engines_up: bool) -> ProbeResults:
    """Return what the probes say that rows of this stage ask for, one probe after the other.

    Only nodes are asked that a row is about and that are not quarantined. `engines_up` says whether the
    run's own engines hold their cards now. Each node that was asked gets a record and a log.
    """
    found: ProbeResults = {}
    for name, wanted in _wanted(run, stage).items():
        probe = run.acceptance.probes[name]
        nodes = list(dict.fromkeys(node for _, _, node in wanted))
        shown = f"{', '.join(nodes[:4])}{' ...' if len(nodes) > 4 else ''}"
        run.say(f"{stage}: probe {name} on {shown}, at most {probe.deadline_s:g} s")
        answers = run_on_nodes(
            probe,
            run.target,
            nodes,
            left_out=run.ledger.left_out,
            busy=busy_cards(run.target, engines_up=engines_up),
        )
        for answer in answers:
            _record(run, stage, probe, answer)
        mute = [answer.node for answer in answers if not answer.answered]
        if mute:
            said = f"{len(answers) - len(mute)} of {len(answers)} answered"
            run.say(f"{stage}: probe {name}: {said}; no value from {', '.join(mute[:8])}")
        found |= measurements_of(probe, answers, wanted)
    return found


def _wanted(run: Run, stage: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return, by probe, (value, entity, node) of every check of the stage that a probe answers."""
    out, nodes = run.ledger.quarantined(stage), {node.name for node in run.target.nodes}
    wanted: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for check in run.ledger.planned.values():
        name = probe_of(check.slo.metric)
        if check.slo.stage != stage or name not in run.acceptance.probes:
            continue
        if check.declared_absent or check.not_assessed or check.entity in out:
            continue
        if check.slo.scope is Scope.CARD and check.entity in nodes:
            continue  # no card was found there, which has a check of its own
        once = run.acceptance.probes[name].where == "here"
        node = ONCE if once else run.target.node_of(check.entity) or ONCE
        one = (check.slo.metric.split(".")[-1], check.entity, node)
        if one not in wanted[name]:
            wanted[name].append(one)
    return wanted


def _record(run: Run, stage: str, probe: Probe, answer: Answer) -> None:
    log = ""
    if answer.asked:
        log = f"logs/probe.{stage}.{probe.name}.{re.sub(r'[^A-Za-z0-9._-]', '_', answer.node)}.log"
        text = f"$ {answer.command}\n{answer.text}\n--- on its error channel\n{answer.errors}\n"
        path = run.evidence / log
        path.write_text(run.log.redactor.redact(text[:_LOG_CHARACTERS]), encoding="utf-8", errors="replace")
    run.record(
        "probe",
        stage=stage,
        probe=probe.name,
        tool=probe.tool,
        node=answer.node,
        asked=answer.asked,
        answered=answer.answered,
        where=probe.where,
        command=answer.command,
        status=answer.status,
        reason=str(answer.reason) if answer.reason else None,
        detail=answer.detail,
        duration_s=round(answer.duration_s, 3),
        digest=hashlib.sha256(answer.text.encode()).hexdigest() if answer.text else None,
        result=answer.result,
        log=log,
        values=len(answer.values),
    )
