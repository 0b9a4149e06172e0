"""What a run says as a whole: headline, stages, troubles with their next step, quarantine, five numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rackgate.nouns.slo import STAGES
from rackgate.nouns.verdict import Verdict, worst
from rackgate_reports.evidence import RunEvidence, number_of
from rackgate_reports.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackgate_reports.digest.checks import CheckRow


GRADES = {
    "simulated": (
        "SIMULATED",
        "The rack was simulated. Never valid for sign-off: it shows that the checks work, not the hardware.",
    ),
    "cpu": (
        "CPU ONLY",
        "The engines ran on CPUs. Never valid for sign-off: it shows that the path serves, not the cards.",
    ),
    "unproven": (
        "UNPROVEN",
        "Nothing shows what hardware answered: what the address serves was tested, and no card or rack.",
    ),
    "accelerator": ("ACCELERATOR", "Measured on accelerators."),
}
"""Evidence grade -> its word and what it is worth."""

FIVE_NUMBERS = (
    ("output_token_throughput", "value", "Throughput"),
    ("ttft_ms", "p99", "P99 TTFT"),
    ("error_rate", "value", "Error rate"),
    ("power_w", "value", "Power"),
    ("temperature_c", "value", "Temperature"),
)
"""Metric, statistic and title of the five numbers, in their order."""


_MOST_WARNED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict in words. `warnings` are what a reader must know before believing anything else."""

    word: str
    text: str
    scope: str
    accepted: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """One stage. `verdict` is None and `state` says why where nothing was asked of it."""

    stage: str
    verdict: Verdict | None
    counts: Mapping[str, int]
    duration_s: float | None = None
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One SLO row that is FAIL or UNKNOWN by itself, on one or more entities."""

    slo: str
    stage: str
    verdict: Verdict
    rows: tuple[CheckRow, ...]
    gated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersRow:
    """The headline measurements of one stage under one load, by metric."""

    stage: str
    load: str
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def counts_of(rows: Sequence[CheckRow]) -> dict[str, int]:
    """Count by verdict, and by status for what was not judged; only what occurs."""
    counts: dict[str, int] = {}
    for row in rows:
        name = row.status or str(row.verdict)
        counts[name] = counts.get(name, 0) + 1
    order = ["FAIL", "UNKNOWN", "WARN", "PASS", "gated", "no_record", "declared", "not_assessed"]
    return {name: counts[name] for name in order if name in counts}


def headline_of(run: RunEvidence, rows: Sequence[CheckRow]) -> Headline:
    """Return the headline; a run without its end, or whose records contradict it, is not accepted."""
    warnings = [*_judged_again(run), *run.problems, *_warned(rows)]
    end = run.end
    missing = sum(row.status == "no_record" for row in rows)
    if end is None:
        judged = len(rows) - missing
        text = f"the run has no end: {judged:,} of {plural(len(rows), 'check')} have a verdict"
        return Headline(
            word="INTERRUPTED",
            text=f"not accepted; {text}",
            scope="A run that was interrupted is never accepted. What was recorded up to then is below.",
            accepted=False,
            warnings=(*warnings, *_partial(run.run)),
        )
    contradictions = _contradictions(run, end, rows)
    accepted = bool(end.get("accepted")) and not contradictions
    said = str(end.get("headline") or "")
    word, _, text = said.partition(":")
    if not accepted:
        word, text = "NOT ACCEPTED", text if word.strip().startswith("NOT ACCEPTED") else said
    elif not word.strip().startswith("ACCEPTED"):
        word, text = "ACCEPTED", said
    return Headline(
        word=word.strip(),
        text=text.strip(),
        scope=str(end.get("scope_text") or "the scope of this run was not recorded"),
        accepted=accepted,
        warnings=(*contradictions, *warnings, *(_partial(end) or _partial(run.run))),
    )


def _warned(rows: Sequence[CheckRow]) -> tuple[str, ...]:
    """Say which checks warn: what was measured there afterwards was measured in that state."""
    warned = [row.check for row in rows if row.verdict is Verdict.WARN and not row.status]
    if not warned:
        return ()
    named = ", ".join(warned[:_MOST_WARNED])
    more = f" and {len(warned) - _MOST_WARNED} more" if len(warned) > _MOST_WARNED else ""
    later = sum(bool(row.warnings) for row in rows)
    tainted = f"; {plural(later, 'value')} measured there later say so" if later else ""
    return (f"With {plural(len(warned), 'warning')}: {named}{more}{tainted}.",)


def _judged_again(run: RunEvidence) -> tuple[str, ...]:
    """Say that this is no verdict of the run itself, by what it is, and what the run's own was."""
    about = run.judged_again
    if not about:
        return ()
    acceptance = run.run.get("acceptance") or {}
    files = ", ".join(str(name) for name in acceptance.get("files") or ())
    own = about.get("headline") or "none, it was interrupted"
    same = acceptance.get("digest") == about.get("acceptance_digest")
    by = "by the run's own acceptance" if same else f"by another acceptance ({files})"
    return (f"Judged again at {about.get('judged_at')} {by}. The run's own verdict: {own}",)


def endurance_of(run: RunEvidence) -> str:
    """Return what the soak proves, as a sentence without its full stop; empty if it proves nothing."""
    text = str((run.end or {}).get("endurance") or "")
    return text[:1].upper() + text[1:]


def _partial(record: Mapping[str, Any]) -> tuple[str, ...]:
    if not record.get("partial"):
        return ()
    why = record.get("partial_why")
    reasons = ", ".join(map(str, why)) if isinstance(why, list | tuple) else str(why or "")
    return (f"Partial run ({reasons or 'no reason recorded'}): it cannot be certified.",)


def _contradictions(run: RunEvidence, end: Mapping[str, Any], rows: Sequence[CheckRow]) -> tuple[str, ...]:
    said: list[str] = []
    if end.get("digest") and end["digest"] != run.digest_before_end:
        said.append("The digest in the end record does not match the records: they were changed afterwards.")
    if run.records[-1]["kind"] != "end":
        said.append("Records follow the end of the run: they were added afterwards.")
    bad = sum(row.decides and not row.verdict.accepted for row in rows if row.status != "no_record")
    missing = sum(row.status == "no_record" for row in rows)
    if end.get("accepted") and bad:
        said.append(f"The end record says accepted, but {plural(bad, 'check')} did not pass.")
    if missing:
        said.append(f"{plural(missing, 'check')} asked for left no record.")
    return tuple(said)


def stages_of(run: RunEvidence, rows: Sequence[CheckRow]) -> tuple[StageSummary, ...]:
    """Return the eight stages in order, then any other that has rows."""
    asked = [str(stage) for stage in run.run.get("stages") or ()]
    others = [stage for stage in dict.fromkeys(row.stage for row in rows) if stage not in STAGES]
    begun = {str(record.get("stage")) for record in run.of("stage")}
    ended = {str(record.get("stage")): record for record in run.of("stage") if record.get("phase") == "end"}
    summaries: list[StageSummary] = []
    for stage in (*STAGES, *others):
        own = [row for row in rows if row.stage == stage]
        decisive = [row.verdict for row in own if row.decides]
        state = ""
        if not own:
            state = "no checks" if not asked or stage in asked else "not asked"
        elif run.end is None and stage not in ended:
            state = "interrupted here" if stage in begun else "not reached"
        summaries.append(
            StageSummary(
                stage=stage,
                verdict=worst(decisive) if decisive else None,
                counts=counts_of(own),
                duration_s=number_of(ended.get(stage, {}).get("duration_s")),
                state=state or ("" if decisive else "nothing to judge"),
            )
        )
    return tuple(summaries)


def troubles_of(rows: Sequence[CheckRow]) -> tuple[Trouble, ...]:
    """Group what is FAIL or UNKNOWN by itself by SLO row and verdict, in order of stage, FAIL first."""
    groups: dict[tuple[str, str, Verdict], list[CheckRow]] = {}
    gated: dict[str, list[str]] = {}
    for row in rows:
        if row.status == "gated":
            gated.setdefault(row.gated_by, []).append(row.check)
        elif row.troubles:
            groups.setdefault((row.stage, row.slo or row.check, row.verdict), []).append(row)
    order = {stage: index for index, stage in enumerate(STAGES)}
    troubles = [
        Trouble(
            slo=slo,
            stage=stage,
            verdict=verdict,
            rows=tuple(own),
            gated=tuple(check for row in own for check in gated.get(row.check, ())),
        )
        for (stage, slo, verdict), own in groups.items()
    ]
    return tuple(
        sorted(troubles, key=lambda trouble: (-trouble.verdict.badness, order.get(trouble.stage, 99)))
    )


def numbers_of(run: RunEvidence) -> tuple[NumbersRow, ...]:
    """Return the five numbers by stage and load, from measurements of the rack marked as headline."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for record in run.of("measurement"):
        if record.get("headline"):
            key = (str(record.get("stage")), str(record.get("load") or ""))
            found.setdefault(key, {})[str(record.get("metric"))] = record
    order = {stage: index for index, stage in enumerate(STAGES)}
    keys = sorted(found, key=lambda key: order.get(key[0], 99))
    return tuple(NumbersRow(stage=key[0], load=key[1], values=found[key]) for key in keys)
