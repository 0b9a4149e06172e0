"""Judges every row of an acceptance file by the evidence of a finished run."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackgate.checks.plan import plan_checks
from rackgate.config.acceptance_file import Acceptance
from rackgate.evidence.record import JUDGEMENT
from rackgate.evidence.redaction import Redactor
from rackgate.judging.ledger import Ledger
from rackgate.judging.run_verdict import RunVerdict
from rackgate.metrics.observation import Observation
from rackgate.metrics.registry import Registry
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import STAGES, Check
from rackgate.rejudge.finished_run import FinishedRun
from rackgate.rejudge.observation import load_differences, rebuild_observation
from rackgate.run.run import Run
from rackgate.stages.load_runs import lag_limit_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudgement:
    """A later judgement: its last record, each verdict, and what the run itself had said.

    `left_out` counts the checks that the run had not asked and that were left out therefore.
    """

    end: dict[str, Any]
    verdicts: dict[str, str]
    before: dict[str, str]
    messages: dict[str, str]
    left_out: int = 0

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """What the run said and what is said now, by check, where they differ."""
        both = [check for check in self.verdicts if check in self.before]
        return {
            check: (self.before[check], self.verdicts[check])
            for check in both
            if self.before[check] != self.verdicts[check]
        }


def rejudge(
    finished: FinishedRun, acceptance: Acceptance, registry: Registry, view: Path, *, only_asked: bool = False
) -> Rejudgement:
    """Judge the run by `acceptance` and write the records of that into the folder `view`.

    Metrics of samples and telemetry are computed anew; direct measurements come from the run's records;
    what the evidence does not hold is UNKNOWN, with the reason. With `only_asked` checks that the run did
    not ask are left out: a later version ships more rows.
    """
    registry.add_probes(acceptance.probes)
    left_out = {str(unit): "excluded" for unit in finished.run.get("excluded") or ()}
    ledger = Ledger(target=finished.target, left_out=left_out)
    with tempfile.TemporaryDirectory(prefix="rackgate-judge-") as folder:
        run = Run(
            folder=Path(folder), target=finished.target, acceptance=acceptance, registry=registry,
            ledger=ledger, redactor=Redactor([]), seed=int(finished.run["seed"]),
        )  # fmt: skip
        run.log.grade = finished.grade
        stages = tuple(finished.run.get("stages") or STAGES)
        run.open(stages=stages, facts={"judged_again": _about(finished)})
        checks = plan_checks(
            finished.target, acceptance.slos, stages, metrics=registry.metrics, probes=acceptance.probes
        )
        asked = finished.asked()
        run.judging.plan([check for check in checks if check.id in asked or not only_asked])
        messages = _Judging(run, finished).judge_all()
        end = _end(run, finished)
        run.log.close(**end)
        view.mkdir(parents=True, exist_ok=True)
        shutil.move(run.evidence / "records.jsonl", view / JUDGEMENT)
    verdicts = {check: ledger.skipped.get(check, str(verdict)) for check, verdict in ledger.verdicts.items()}
    return Rejudgement(
        end=end,
        verdicts=verdicts,
        before=finished.verdicts(),
        messages=messages,
        left_out=len(checks) - len(verdicts),
    )


def _about(finished: FinishedRun) -> dict[str, Any]:
    return {
        "run_id": finished.run.get("run_id"),
        "records_sha256": finished.digest,
        "acceptance_digest": finished.run["acceptance"]["digest"],
        "headline": (finished.end or {}).get("headline"),
        "judged_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class _Judging:
    """The checks in the order of the stages; gates close as they would have closed in the run."""

    def __init__(self, run: Run, finished: FinishedRun) -> None:
        self._run = run
        self._finished = finished
        self._seen: dict[str, Observation] = {}

    def judge_all(self) -> dict[str, str]:
        """Record a verdict for every planned check, and return the messages by check."""
        return {check.id: self._judge(check) for check in self._run.ledger.planned.values()}

    def _judge(self, check: Check) -> str:
        run = self._run
        return run.judging.skip_if_not_run(check) or run.judging.judge(check, self._measured(check))[1]

    def _measured(self, check: Check) -> Measurement:
        row = check.slo
        metric = self._run.registry.metrics.get(row.metric)
        if row.stage == "selfcheck" or metric is None or not metric.needs_load:
            return self._finished.recorded(check)  # measured directly: no sample holds it
        name = row.load or ""
        differs = load_differences(name, self._finished.loads.get(name), self._run.acceptance.loads.get(name))
        if differs is not None:
            return missing(row.metric, check.entity, row.unit, Reason.UNSUPPORTED, differs.text)
        measured = self._run.measure(check, self._observation(row.stage))
        if measured.value is None and not self._observation(row.stage).load_runs:
            return self._finished.recorded(check)  # has the reason why nothing was offered
        return measured

    def _observation(self, stage: str) -> Observation:
        if stage not in self._seen:
            self._seen[stage] = rebuild_observation(
                self._finished,
                stage,
                loads=self._run.acceptance.loads,
                excluded=frozenset(self._run.ledger.quarantined(stage)),
                lag_limit_ms=lag_limit_ms(self._run),
                profile=self._run.profile,
            )
        return self._seen[stage]


def _soaked_s(finished: FinishedRun) -> float:
    soaks = (record for record in finished.of("load") if record["stage"] == "soak")
    return float(sum(max(0, record["end_ns"] - record["start_ns"]) / 1e9 for record in soaks))


def _end(run: Run, finished: FinishedRun) -> dict[str, Any]:
    """Return the last record: a run that was cut short, partial or failed otherwise stays that."""
    own = finished.end or {}
    ending = RunVerdict(
        ledger=run.ledger,
        complete=bool(own.get("complete")),
        partial_why=own.get("partial_why") or (),
        other_failures=own.get("other_failures") or (),
        not_checked=own.get("not_checked") or {},
        soaked_s=_soaked_s(finished),
    )
    return ending.entry(0 if ending.met else 1)
