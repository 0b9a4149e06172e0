"""Judging in a run: a check is measured, judged and recorded, and its verdict may quarantine an entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rackgate.diagnosis.chain import Chain, chain_of
from rackgate.diagnosis.context import with_context
from rackgate.diagnosis.cures import cure_of_measurement
from rackgate.judging.judge import judge
from rackgate.judging.ledger import Ledger
from rackgate.judging.message import gated_message, hint_of, number, verdict_message
from rackgate.metrics.layers import layer_of_row
from rackgate.metrics.metric import Metric, measure
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement, Reason, missing, tainted
from rackgate.nouns.slo import Check
from rackgate.nouns.verdict import Judgement, Verdict
from rackgate.run.log import EvidenceLog
from rackgate.run.payloads import check_entry, gate_entry, verdict_entry

_NO_SIGN_OF_LIFE = (Reason.UNREACHABLE, Reason.DIED, Reason.ABSENT)


class Judging:
    """Measures and judges checks; every verdict is recorded and entered in the ledger.

    `measured` holds value and verdict in words by check, for JUnit's properties.
    """

    def __init__(self, metrics: Mapping[str, Metric], ledger: Ledger, log: EvidenceLog) -> None:
        self._metrics = metrics
        self._ledger = ledger
        self._log = log
        self.measured: dict[str, str] = {}

    def plan(self, checks: Iterable[Check]) -> None:
        """Record every check that was asked, before the first is judged."""
        planned = list(checks)
        for check in planned:
            self._ledger.plan(check)
        self._log.record(
            "plan", checks=[check_entry(check, self.definition(check.slo.metric)) for check in planned]
        )

    def definition(self, metric: str) -> str:
        """Return the definition of a metric, "" for one that nobody registered."""
        return self._metrics[metric].definition if metric in self._metrics else ""

    def measure(self, check: Check, observation: Observation) -> Measurement:
        """Return what the check's row asks for, from what was observed.

        A missing value has a hint how to get it; an unmet one has what else was seen at that time.
        """
        found = measure(self._metrics, check.slo, check.entity, observation)
        if found.value is None and not found.hint and check.slo.metric in self._metrics:
            needs = self._metrics[check.slo.metric].needs
            return replace(found, hint=cure_of_measurement(needs, found, observation.target))
        if found.value is None or judge(check, found).verdict is Verdict.PASS:
            return found
        return with_context(check, found, observation)

    def judge(self, check: Check, measurement: Measurement) -> tuple[Judgement, str]:
        """Judge a measurement, record the verdict, close gates; return the judgement and its message.

        The warnings under which it was measured stand beside it.
        """
        measurement = tainted(measurement, self._ledger.open_warnings(check.entity))
        judgement = judge(check, measurement)
        chain = self._chain(check, measurement, judgement)
        message = verdict_message(check, measurement, judgement, chain)
        self._record(check, measurement, judgement, message, chain=chain)
        self.measured[check.id] = f"{number(measurement.value, check.slo.unit)} ({judgement.verdict})"
        gate = self._ledger.enter(check, judgement.verdict, answered=_sign_of_life(check, measurement))
        if gate is not None:
            self._log.record("gate", **gate_entry(gate, self._ledger.target, message))
        return judgement, message

    def skip_if_not_run(self, check: Check) -> str | None:
        """Record why a check is not to be run (declared, not assessed, gated), and return it; else None."""
        gated_by = ""
        if check.declared_absent:
            kind, reason, message = "declared", Reason.NOT_CONFIGURED, check.declared_absent
        elif check.not_assessed:
            kind, reason, message = "not_assessed", Reason.EXCLUDED, check.not_assessed
        else:
            gated_by = self._ledger.gated_by(check) or ""
            if not gated_by:
                return None
            kind, reason, message = "gated", Reason.GATED, gated_message(gated_by)
        judgement = Judgement(verdict=Verdict.UNKNOWN, reason=reason, detail=message)
        self._record(
            check, _nothing(check, reason, message), judgement, message, skipped=kind, gated_by=gated_by
        )
        self._ledger.enter(check, Verdict.UNKNOWN, skipped=kind)
        return message

    def unanswered(self, check: Check, reason: Reason, text: str) -> str:
        """Record that a check's test ended without a verdict, and why; return the message."""
        return self.judge(check, _nothing(check, reason, text))[1]

    def _chain(self, check: Check, measurement: Measurement, judgement: Judgement) -> Chain | None:
        if judgement.verdict is Verdict.PASS:
            return None
        metric = self._metrics.get(check.slo.metric)
        layer = layer_of_row(check.slo, metric.layer if metric else None)
        return chain_of(measurement, judgement, layer, hint_of(check, measurement, judgement))

    def _record(
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
        self._log.record("verdict", **entry, skipped=skipped, gated_by=gated_by, message=message)


def _nothing(check: Check, reason: Reason, text: str) -> Measurement:
    return missing(check.slo.metric, check.entity, check.slo.unit, reason, text)


def _sign_of_life(check: Check, measurement: Measurement) -> bool:
    """Return whether what was asked gave a sign of life: an engine that refuses connections gives none."""
    if measurement.value is None:
        return measurement.reason not in _NO_SIGN_OF_LIFE
    return bool(measurement.value) or check.slo.metric != "engine_reachable"
