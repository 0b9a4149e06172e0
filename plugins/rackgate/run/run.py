"""One acceptance run: its folder, its records, its ledger and its clock."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackgate.config.acceptance_file import Acceptance
from rackgate.diagnosis.chain import Chain
from rackgate.evidence.record import Record, RecordLog
from rackgate.evidence.redaction import Redactor
from rackgate.hosts.facts.fact import Fact
from rackgate.judging.judge import judge
from rackgate.judging.ledger import Ledger
from rackgate.judging.message import gated_message, hint_of, number, verdict_message
from rackgate.loadgen.progress import Silent, Teller
from rackgate.metrics.layers import layer_of_row
from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.metrics.registry import Registry
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement, Reason, missing, tainted
from rackgate.nouns.slo import Check
from rackgate.nouns.target import GRADES, Target
from rackgate.nouns.verdict import Judgement, Verdict
from rackgate.run.economy import Economies
from rackgate.run.payloads import (
    acceptance_entry,
    check_entry,
    gate_entry,
    host_entry,
    redacted,
    target_entry,
    verdict_entry,
)

_NO_SIGN = (Reason.UNREACHABLE, Reason.DIED, Reason.ABSENT)


class FolderInUse(Exception):
    """The run folder already holds evidence."""


class NotOpen(Exception):
    """A record before the first one."""


class Run:
    """A run in progress. Everything that becomes evidence goes through `record`.

    What modules leave here for each other, and who sets it:

    - `grade`: what the evidence is worth, one of `GRADES`; `lower_grade` alone changes it.
    - `instrument_handicap`: what a scenario does to our own load generator, "" for nothing; startup.
    - `partial_why`: the options that leave checks out; stages.
    - `measured`: by check, value and verdict in words, for JUnit's properties; `judge`.
    - `notes`: lines for the end of the terminal's summary; site, provenance.
    - `held`: by `NODE` or `NODE container`, the check that keeps engines from being started; s1_preflight.
    - `hung`: by node, the facts whose commands hung when `local` looked, not to be waited for again; startup.
    - `cards_lost`: returns how engines lost their cards, by entity; site.
    - `offered_s`: by stage, for how many seconds load was offered; offering.
    - `economies`: energy and cost of all loads, by class of work; economy.
    - `faults`: the timelines of what was injected, in order; faults.injection.
    - `on_progress`, `teller`: show a line, and how far a load is; recorder.
    - `hottest`: returns the card that is hottest now, in words, "" if none says; `rack_telemetry`.
    - `started_ns`, `run_id`: the monotonic moment of its beginning; UTC second and process id.
    """

    def __init__(
        self,
        *,
        folder: Path,
        target: Target,
        acceptance: Acceptance,
        registry: Registry,
        ledger: Ledger,
        redactor: Redactor,
        seed: int,
        on_record: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.folder = folder
        self.evidence = folder / "evidence"
        if self.evidence.exists() and any(self.evidence.iterdir()):
            raise FolderInUse(f"{folder} already holds the evidence of a run: give another --rack-out")
        self.target = target
        self.acceptance = acceptance
        self.registry = registry
        self.ledger = ledger
        self.redactor = redactor
        self.seed = seed
        self.grade = target.grade
        self.instrument_handicap = ""
        self.partial_why: tuple[str, ...] = ()
        self.measured: dict[str, str] = {}
        self.notes: list[str] = []
        self.held: dict[str, str] = {}
        self.hung: Mapping[str, Mapping[str, Fact]] = {}
        self.cards_lost: Callable[[], dict[str, str]] = _none_lost
        self.offered_s: dict[str, float] = {}
        self.economies = Economies()
        self.faults: tuple[FaultTimeline, ...] = ()
        self.on_progress: Callable[[str], None] = _say_nothing
        self.teller: Teller = Silent()
        self.hottest: Callable[[], str] = _none_hot
        self.started_ns = time.perf_counter_ns()
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid():x}"
        self._sample_files = 0
        self._stages_begun: list[tuple[int, str]] = []
        self._on_record = on_record
        self._log: RecordLog | None = None

    @property
    def profile(self) -> str:
        """The profile's name."""
        return self.acceptance.profile

    @property
    def opened(self) -> bool:
        """Whether the folder was made and the first record written."""
        return self._log is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return (time.perf_counter_ns() - self.started_ns) / 1e9

    def record(self, kind: str, **payload: Any) -> None:
        """Append one record; secrets are taken out of every text first. Raises `NotOpen` before `open`."""
        if self._log is None:
            raise NotOpen(f"record '{kind}': the run has not begun")
        record = Record(
            seq=self._log.seq,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            t_ns=time.perf_counter_ns(),
            kind=kind,
            payload=redacted(payload, self.redactor),
        )
        self._log.append(record)
        if self._on_record is not None:
            self._on_record({"kind": kind, "seq": record.seq, "at": record.at, **record.payload})

    def begin_stage(self, stage: str) -> None:
        """Record that a stage begins."""
        self._stages_begun.append((time.perf_counter_ns(), stage))
        self.record("stage", stage=stage, phase="begin", text=f"stage {stage} begins")

    def stage_at(self, moment_ns: int) -> str:
        """Return the stage that had begun last at a moment, "" before the first."""
        return next((stage for began_ns, stage in reversed(self._stages_begun) if began_ns <= moment_ns), "")

    def sample_file(self, name: str) -> Path:
        """Return a path for the samples of one more load, numbered in the order of loads."""
        self._sample_files += 1
        plain = re.sub(r"[^A-Za-z0-9._+-]", "_", name)
        return self.evidence / "samples" / f"{self._sample_files:03d}.{plain}.parquet"

    def event(self, name: str, text: str) -> None:
        """Record anything that is worth a line."""
        self.record("event", event=name, text=text)

    def lower_grade(self, grade: str, text: str) -> None:
        """Record that the evidence is worth less than the target declares, and why; it never rises."""
        if GRADES.index(grade) < GRADES.index(self.grade):
            self.grade = grade
            self.record("event", event="grade", text=text, grade=grade)

    def open(self, *, stages: tuple[str, ...], facts: Mapping[str, Any]) -> None:
        """Make the folder and write the first record: what was asked, of what, with which files."""
        for name in ("samples", "logs"):
            (self.evidence / name).mkdir(parents=True, exist_ok=True)
        self._log = RecordLog(self.evidence / "records.jsonl")
        self.record(
            "run",
            run_id=self.run_id,
            profile=self.profile,
            grade=self.target.grade,
            seed=self.seed,
            stages=list(stages),
            target=target_entry(self.target),
            **acceptance_entry(self.acceptance),
            host=host_entry(),
            continues=None,
            **facts,
        )

    def plan(self, checks: list[Check]) -> None:
        """Record every check that was asked, before the first is judged."""
        for check in checks:
            self.ledger.plan(check)
        self.record(
            "plan", checks=[check_entry(check, self.definition(check.slo.metric)) for check in checks]
        )

    def definition(self, metric: str) -> str:
        """Return the definition of a metric."""
        return self.registry.metrics[metric].definition if metric in self.registry.metrics else ""

    def measure(self, check: Check, observation: Observation) -> Measurement:
        """Return what the check's row asks for, from what was observed; unmet, with what else was seen."""
        found = measure(self.registry.metrics, check.slo, check.entity, observation)
        if found.value is None and not found.hint and check.slo.metric in self.registry.metrics:
            from rackgate.diagnosis.cures import cure_for  # here: most measurements have a value

            needs = self.registry.metrics[check.slo.metric].needs
            return replace(found, hint=cure_for(needs, found, observation.target))
        if found.value is None or judge(check, found).verdict is Verdict.PASS:
            return found
        from rackgate.diagnosis.context import with_what_else

        return with_what_else(check, found, observation)

    def judge(self, check: Check, measurement: Measurement) -> tuple[Judgement, str]:
        """Judge a measurement, record the verdict, close gates; return the judgement and its message.

        Beside it stand the warnings under which it was measured.
        """
        measurement = tainted(measurement, self.ledger.open_warnings(check.entity))
        judgement = judge(check, measurement)
        chain = self._chain(check, measurement, judgement)
        message = verdict_message(check, measurement, judgement, chain)
        self._verdict(check, measurement, judgement, message, chain=chain)
        self.measured[check.id] = f"{number(measurement.value, check.slo.unit)} ({judgement.verdict})"
        gate = self.ledger.enter(check, judgement.verdict, answered=_answered(check, measurement))
        if gate is not None:
            self.record("gate", **gate_entry(gate, self.target, message))
        return judgement, message

    def _chain(self, check: Check, measurement: Measurement, judgement: Judgement) -> Chain | None:
        if judgement.verdict is Verdict.PASS:
            return None
        from rackgate.diagnosis.chain import chain_of  # here: most verdicts need none of it

        metric = self.registry.metrics.get(check.slo.metric)
        layer = layer_of_row(check.slo, metric.layer if metric else None)
        return chain_of(measurement, judgement, layer, hint_of(check, measurement, judgement))

    def skip_if_not_run(self, check: Check) -> str | None:
        """Record why a check is not to be run (declared, not assessed, gated), and return it; else None."""
        gated_by = ""
        if check.declared_absent:
            kind, reason, message = "declared", Reason.NOT_CONFIGURED, check.declared_absent
        elif check.not_assessed:
            kind, reason, message = "not_assessed", Reason.EXCLUDED, check.not_assessed
        else:
            gated_by = self.ledger.gated_by(check) or ""
            if not gated_by:
                return None
            kind, reason, message = "gated", Reason.GATED, gated_message(gated_by)
        nothing = missing(check.slo.metric, check.entity, check.slo.unit, reason, message)
        judgement = Judgement(verdict=Verdict.UNKNOWN, reason=reason, detail=message)
        self._verdict(check, nothing, judgement, message, skipped=kind, gated_by=gated_by)
        self.ledger.enter(check, Verdict.UNKNOWN, skipped=kind)
        return message

    def unanswered(self, check: Check, reason: Reason, text: str) -> str:
        """Record that a check's test ended without a verdict, and why; return the message."""
        nothing = missing(check.slo.metric, check.entity, check.slo.unit, reason, text)
        return self.judge(check, nothing)[1]

    def close(self, **payload: Any) -> None:
        """Write the last record and close the log; raises `NotOpen` before `open`."""
        if self._log is None:
            raise NotOpen("the run has not begun")
        self.record(
            "end",
            grade=self.grade,
            records=self._log.seq,
            digest=self._log.digest(),
            duration_s=self.elapsed_s,
            **payload,
        )
        self._log.close()

    def _verdict(
        self,
        check: Check,
        measurement: Measurement,
        judgement: Judgement,
        message: str,
        *,
        skipped: str = "",
        gated_by: str = "",
        chain: Chain | None = None,
    ) -> None:
        entry = verdict_entry(check, measurement, judgement, self.definition(check.slo.metric), chain)
        self.record("verdict", **entry, skipped=skipped, gated_by=gated_by, message=message)


def _answered(check: Check, measurement: Measurement) -> bool:
    """Return whether what was asked gave a sign of life: an engine that refuses connections gives none."""
    if measurement.value is None:
        return measurement.reason not in _NO_SIGN
    return bool(measurement.value) or check.slo.metric != "engine_reachable"


def _say_nothing(text: str) -> None:
    del text


def _none_lost() -> dict[str, str]:
    return {}


def _none_hot() -> str:
    return ""
