"""The run as a whole: headline, grade, stages, quarantine, definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackgate.nouns.slo import STAGES
from rackgate.nouns.verdict import Verdict, worst
from rackgate_reports.digest.checks import CheckRow, counts_of
from rackgate_reports.evidence import RunEvidence, mapping, number_of
from rackgate_reports.formatting import first_upper, plural

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
"""Evidence grade -> its title and what it is worth."""

_MOST_NAMED_WARNINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict in words. `warnings` are what a reader must know before believing anything else."""

    word: str
    text: str
    scope: str
    accepted: bool
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """PASS if accepted, UNKNOWN if interrupted, FAIL if not accepted."""
        if self.accepted:
            return Verdict.PASS
        return Verdict.UNKNOWN if self.word == "INTERRUPTED" else Verdict.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """One stage. Where nothing was asked of it, `verdict` is None and `state` says why."""

    stage: str
    verdict: Verdict | None
    counts: Mapping[str, int]
    duration_s: float | None = None
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An entity, or all of some stages if `entity` is empty, that a check took out of the run."""

    entity: str
    by: str
    verdict: str
    text: str
    stages: tuple[str, ...]
    gated_checks: int


def grade_title_and_worth(run: RunEvidence) -> tuple[str, str]:
    """Return the title of the run's evidence grade and what it is worth."""
    return GRADES.get(run.grade, ("UNKNOWN GRADE", "The run did not record what its evidence is worth."))


def headline_of(run: RunEvidence, rows: Sequence[CheckRow]) -> Headline:
    """Return the headline; a run without its end, or whose records contradict it, is not accepted."""
    warnings = [*_judged_again(run), *run.problems, *_warned(rows)]
    end = run.end
    if end is None:
        judged = sum(row.status != "no_record" for row in rows)
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
    recorded = str(end.get("headline") or "")
    word, _, text = recorded.partition(":")
    if not accepted:
        word, text = "NOT ACCEPTED", text if word.strip().startswith("NOT ACCEPTED") else recorded
    elif not word.strip().startswith("ACCEPTED"):
        word, text = "ACCEPTED", recorded
    return Headline(
        word=word.strip(),
        text=text.strip(),
        scope=str(end.get("scope_text") or "the scope of this run was not recorded"),
        accepted=accepted,
        warnings=(*contradictions, *warnings, *(_partial(end) or _partial(run.run))),
    )


def _warned(rows: Sequence[CheckRow]) -> tuple[str, ...]:
    """Name the checks that warn: later measurements of the entity were made in that state."""
    warned = [row.check for row in rows if row.verdict is Verdict.WARN and not row.status]
    if not warned:
        return ()
    named = ", ".join(warned[:_MOST_NAMED_WARNINGS])
    rest = len(warned) - _MOST_NAMED_WARNINGS
    more = f" and {rest} more" if rest > 0 else ""
    later = sum(bool(row.warnings) for row in rows)
    tainted = f"; {plural(later, 'value')} measured there later say so" if later else ""
    return (f"With {plural(len(warned), 'warning')}: {named}{more}{tainted}.",)


def _judged_again(run: RunEvidence) -> tuple[str, ...]:
    """Name the acceptance of a later judgement, and the run's own verdict."""
    about = run.judged_again
    if not about:
        return ()
    acceptance = run.run.get("acceptance") or {}
    files = ", ".join(str(name) for name in acceptance.get("files") or ())
    own = about.get("headline") or "none, it was interrupted"
    same = acceptance.get("digest") == about.get("acceptance_digest")
    by = "by the run's own acceptance" if same else f"by another acceptance ({files})"
    return (f"Judged again at {about.get('judged_at')} {by}. The run's own verdict: {own}",)


def _partial(record: Mapping[str, Any]) -> tuple[str, ...]:
    if not record.get("partial"):
        return ()
    why = record.get("partial_why")
    reasons = ", ".join(map(str, why)) if isinstance(why, list | tuple) else str(why or "")
    return (f"Partial run ({reasons or 'no reason recorded'}): it cannot be certified.",)


def _contradictions(run: RunEvidence, end: Mapping[str, Any], rows: Sequence[CheckRow]) -> tuple[str, ...]:
    found: list[str] = []
    if end.get("digest") and end["digest"] != run.digest_before_end:
        found.append("The digest in the end record does not match the records: they were changed afterwards.")
    if run.records[-1]["kind"] != "end":
        found.append("Records follow the end of the run: they were added afterwards.")
    bad = sum(row.decides and not row.verdict.accepted for row in rows if row.status != "no_record")
    missing = sum(row.status == "no_record" for row in rows)
    if end.get("accepted") and bad:
        found.append(f"The end record says accepted, but {plural(bad, 'check')} did not pass.")
    if missing:
        found.append(f"{plural(missing, 'check')} asked for left no record.")
    return tuple(found)


def endurance_of(run: RunEvidence) -> str:
    """Return what the soak proves, as a sentence; empty if it proves nothing."""
    text = str((run.end or {}).get("endurance") or "")
    return f"{first_upper(text)}." if text else ""


def stages_of(run: RunEvidence, rows: Sequence[CheckRow]) -> tuple[StageSummary, ...]:
    """Return the eight stages in order, then any other stage that has rows."""
    asked = [str(stage) for stage in run.run.get("stages") or ()]
    others = [stage for stage in dict.fromkeys(row.stage for row in rows) if stage not in STAGES]
    begun = {str(record.get("stage")) for record in run.of("stage")}
    ended = {str(record.get("stage")): record for record in run.of("stage") if record.get("phase") == "end"}
    summaries: list[StageSummary] = []
    for stage in (*STAGES, *others):
        own = [row for row in rows if row.stage == stage]
        decisive = [row.verdict for row in own if row.decides]
        state = "" if decisive else "nothing to judge"
        if not own:
            state = "no checks" if not asked or stage in asked else "not asked"
        elif run.end is None and stage not in ended:
            state = "interrupted here" if stage in begun else "not reached"
        summaries.append(
            StageSummary(
                stage=stage,
                verdict=worst(decisive) if decisive else None,
                counts=counts_of(own),
                duration_s=number_of(mapping(ended.get(stage)).get("duration_s")),
                state=state,
            )
        )
    return tuple(summaries)


def gates_of(run: RunEvidence, rows: Sequence[CheckRow]) -> list[Gate]:
    """Return the gates of the run, each with the count of the checks that it kept from running."""
    return [
        Gate(
            entity=str(gate.get("entity") or ""),
            by=(by := str(gate.get("by") or "")),
            verdict=str(gate.get("verdict") or Verdict.UNKNOWN),
            text=str(gate.get("text") or ""),
            stages=tuple(map(str, gate.get("stages") or ())),
            gated_checks=sum(row.status == "gated" and row.gated_by == by for row in rows),
        )
        for gate in run.of("gate")
    ]


def definitions_of(run: RunEvidence) -> dict[str, tuple[str, str]]:
    """Return metric -> definition and recorded unit, of every metric that the report names, sorted."""
    known: dict[str, tuple[str, str]] = {}
    for record in (*run.of("verdict"), *run.checks, *run.of("measurement")):
        if record.get("definition"):
            unit = str(record.get("unit") or "")[:24]
            known.setdefault(str(record.get("metric") or ""), (str(record["definition"]), unit))
    return dict(sorted(known.items()))
