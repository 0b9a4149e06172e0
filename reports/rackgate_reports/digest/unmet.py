"""SLOs that failed or could not be decided: the chain behind them, what the probes did, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackgate.nouns.measurement import Layer, Reason
from rackgate.nouns.slo import STAGES
from rackgate.nouns.verdict import Verdict, worst
from rackgate_reports.digest.checks import CheckRow
from rackgate_reports.evidence import RunEvidence, mapping, mappings, number_of
from rackgate_reports.formatting import clip, duration

LAYERS = tuple(str(layer) for layer in Layer)
"""The layers of a rack, the outermost first."""

_MOST_PROBE_LINES = 6
_MOST_RERUN_ENTITIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """What is known of one layer. Without a `name` it is no known failure, only what the row saw."""

    layer: str
    name: str
    meaning: str
    seen: tuple[str, ...]
    next_steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetSlo:
    """One SLO that is FAIL or UNKNOWN by its own measurement, on one or more entities.

    `gated` lists the checks that these rows kept from running, `probe_lines` what its probe did on each
    node, `chain` what is known by layer, `beside` what was seen at the same time. `command` tests only this
    SLO's stage and entities again.
    """

    slo: str
    stage: str
    verdict: Verdict
    rows: tuple[CheckRow, ...]
    gated: tuple[str, ...]
    probe_lines: tuple[str, ...]
    chain: tuple[ChainLink, ...]
    beside: tuple[str, ...]
    next_steps: tuple[str, ...]
    command: str

    @property
    def causing_layers(self) -> tuple[str, ...]:
        """The layers in which the causes lie."""
        return tuple(layer for layer in LAYERS if any(row.layer == layer for row in self.rows))

    @property
    def known(self) -> bool:
        """True if the chain names a known failure."""
        return any(link.name for link in self.chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetEntity:
    """The SLOs that one entity does not meet."""

    entity: str
    verdict: Verdict
    slos: tuple[str, ...]
    row_count: int


def unmet_slos(run: RunEvidence, rows: Sequence[CheckRow]) -> tuple[UnmetSlo, ...]:
    """Group unmet checks by SLO and verdict, FAIL first, then in order of stage."""
    groups: dict[tuple[str, str, Verdict], list[CheckRow]] = {}
    gated: dict[str, list[str]] = {}
    for row in rows:
        if row.status == "gated":
            gated.setdefault(row.gated_by, []).append(row.check)
        elif row.unmet:
            groups.setdefault((row.stage, row.slo or row.check, row.verdict), []).append(row)
    order = {stage: index for index, stage in enumerate(STAGES)}
    return tuple(
        UnmetSlo(
            slo=slo,
            stage=stage,
            verdict=verdict,
            rows=tuple(own),
            gated=tuple(check for row in own for check in gated.get(row.check, ())),
            probe_lines=_probe_lines(run, stage, own),
            chain=_chain(own),
            beside=tuple(dict.fromkeys(text for row in own for text in row.beside)),
            next_steps=_next_steps(own),
            command=_rerun_command(run, stage, own),
        )
        for (stage, slo, verdict), own in sorted(
            groups.items(), key=lambda item: (-item[0][2].badness, order.get(item[0][0], 99))
        )
    )


def unmet_entities(unmet: Sequence[UnmetSlo]) -> list[UnmetEntity]:
    """Return each entity with what it does not meet, the most first; empty if no entity has several rows."""
    owners: dict[str, list[CheckRow]] = {}
    for row in (row for slo in unmet for row in slo.rows):
        owners.setdefault(row.entity, []).append(row)
    if all(len(rows) == 1 for rows in owners.values()):
        return []
    return [
        UnmetEntity(
            entity=entity,
            verdict=worst(row.verdict for row in rows),
            slos=tuple(dict.fromkeys(row.slo or row.check for row in rows)),
            row_count=len(rows),
        )
        for entity, rows in sorted(owners.items(), key=lambda owner: -len(owner[1]))
    ]


def _chain(rows: Sequence[CheckRow]) -> tuple[ChainLink, ...]:
    """Return the links of all rows, the outermost layer first; a link that several rows share once."""
    found: dict[tuple[str, str], ChainLink] = {}
    for row in rows:
        for record in row.diagnosis:
            link = _link(record, f"{row.entity}: " if len(rows) > 1 else "")
            before = found.get((link.layer, link.name))
            seen = dict.fromkeys((*before.seen, *link.seen) if before else link.seen)
            found[link.layer, link.name] = replace(link, seen=tuple(seen))
    return tuple(sorted(found.values(), key=lambda link: LAYERS.index(link.layer)))


def _link(record: Mapping[str, Any], prefix: str) -> ChainLink:
    seen, layer, steps = str(record.get("seen") or ""), str(record.get("layer")), record.get("next_steps")
    return ChainLink(
        layer=layer if layer in LAYERS else str(Layer.SERVICE),
        name=str(record.get("name") or ""),
        meaning=str(record.get("meaning") or ""),
        seen=(f"{prefix}{seen}",) if seen else (),
        next_steps=tuple(map(str, steps)) if isinstance(steps, list | tuple) else (),
    )


def _next_steps(rows: Sequence[CheckRow]) -> tuple[str, ...]:
    """Return the first step of the known cause, the SLO's hint, then the cure of each reason for no value."""
    first = rows[0]
    causes = [_link(record, "") for record in first.diagnosis if record.get("name") == first.cause != ""]
    steps = [link.next_steps[0] for link in causes[:1] if link.next_steps]
    cures = [Reason(row.reason).cure for row in rows if row.reason in set(Reason)]
    repair = [] if cures else ["Repair the cause, then test again what was repaired."]
    return tuple(dict.fromkeys(filter(None, (*steps, first.hint, *cures, *repair))))


def _probe_lines(run: RunEvidence, stage: str, rows: Sequence[CheckRow]) -> tuple[str, ...]:
    """Return what the probe of these rows did, a line for each node; empty if the metric has no probe."""
    if not rows[0].metric.startswith("probe."):
        return ()
    name = rows[0].metric.split(".")[1]
    nodes = {row.entity.partition("/")[0] for row in rows} | {"rack"}
    records = [
        record
        for record in run.of("probe")
        if (record.get("probe"), record.get("stage")) == (name, stage) and str(record.get("node")) in nodes
    ]
    rest = len(records) - _MOST_PROBE_LINES
    more = [f"and {rest} more nodes"] if rest > 0 else []
    return (*map(_probe_line, records[:_MOST_PROBE_LINES]), *more)


def _probe_line(record: Mapping[str, Any]) -> str:
    node = clip(record.get("node"), 60)
    if record.get("result"):
        digest = str(record.get("digest") or "none")[:12]
        return f"{node}: result from {clip(record.get('result'), 160)}, sha256 {digest}"
    if not record.get("asked"):
        return f"{node}: not asked"
    answered = "answered" if record.get("answered") else "gave no value"
    status, took = record.get("status"), duration(number_of(record.get("duration_s")))
    ended = "did not end" if status is None else f"status {status}"
    log = record.get("log") or "no log"
    return f"{node} {answered}: {clip(record.get('command'), 160)} ({ended}, {took}; {log})"


def _rerun_command(run: RunEvidence, stage: str, rows: Sequence[CheckRow]) -> str:
    entities = [row.entity for row in rows if row.entity not in ("rack", "gateway", "")]
    words = [*_command(run), f"--rack-stage={stage}"]
    if 0 < len(entities) <= _MOST_RERUN_ENTITIES and all("+" not in entity for entity in entities):
        words.append(f"--rack-only={','.join(entities)}")
    return shlex.join(words)


def repeat_command(run: RunEvidence) -> str:
    """Return the command that repeats the run."""
    return shlex.join(_command(run))


def _command(run: RunEvidence) -> list[str]:
    """Return the words; `=` joins option and file: pytest takes a separate path for its own argument."""
    source = str(run.target.get("source") or "")
    if run.run.get("scenario"):
        nodes = run.nodes
        source = f"sim:{len(nodes)}x{len(mappings(nodes[0].get('cards')))}" if nodes else "sim"
    files = mapping(run.run.get("acceptance")).get("files") or ()
    own = [str(file) for file in files if not str(file).startswith("shipped ")]
    options = {
        "--rack-target": source,
        "--rack-model": run.target.get("model") if source.startswith(("http://", "https://")) else None,
        "--rack-slo": own[-1] if own else None,
        "--rack-profile": run.run.get("profile"),
        "--rack-scenario": run.run.get("scenario"),
    }
    given = [f"{option}={value}" for option, value in options.items() if value]
    return ["pytest", "-m", "rack_acceptance", *given]
