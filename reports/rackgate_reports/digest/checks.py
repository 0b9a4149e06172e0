"""Every check that was asked, as one row each: judged, gated, declared absent, or never reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackgate.nouns.measurement import OPEN_WARNING
from rackgate.nouns.verdict import Verdict
from rackgate_reports.evidence import RunEvidence, mapping, mappings, number_of
from rackgate_reports.formatting import amount, as_shown, limit, metric_name

STATUSES = {
    "gated": "gated",
    "declared": "declared absent",
    "not_assessed": "not assessed",
    "no_record": "never reached",
}
"""Why a check has no verdict of its own, in words."""

_OUTCOMES = ("FAIL", "UNKNOWN", "WARN", "PASS", "gated", "no_record", "declared", "not_assessed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check, with value, bound and confidence bounds in the unit that reports show.

    `status` is a key of STATUSES, empty if the check was judged. `margin` is a share of the bound, positive
    inside it. Of an unmet check `diagnosis` lists what is known by layer, the outermost first, `cause` names
    the known failure and `layer` the layer of the cause; `beside` lists what was seen at the same time.
    """

    check: str
    slo: str
    stage: str
    entity: str
    verdict: Verdict
    status: str = ""
    metric: str = ""
    statistic: str = ""
    value: float | None = None
    unit: str = ""
    count: int | None = None
    lower: float | None = None
    upper: float | None = None
    confidence: float | None = None
    reason: str = ""
    detail: str = ""
    op: str = ""
    bound: float | None = None
    margin: float | None = None
    severity: str = ""
    load: str = ""
    source: str = ""
    hint: str = ""
    definition: str = ""
    gated_by: str = ""
    message: str = ""
    layer: str = ""
    cause: str = ""
    diagnosis: tuple[Mapping[str, Any], ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """The status, or the verdict of a check that was judged."""
        return self.status or str(self.verdict)

    @property
    def decides(self) -> bool:
        """False if the target declares the entity absent or the vantage cannot see it."""
        return self.status not in ("declared", "not_assessed")

    @property
    def unmet(self) -> bool:
        """True if the check's own measurement keeps the run from being accepted."""
        return not self.verdict.accepted and self.status == ""

    @property
    def seen(self) -> str:
        """The detail, or a message that says more than the row itself."""
        if self.detail:
            return self.detail
        return "" if self.message.startswith(self.verdict) else self.message

    @property
    def reason_and_seen(self) -> str:
        """Why there is no value, and what was seen."""
        return ": ".join(part for part in (self.reason.replace("_", " "), self.seen) if part)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The open warnings under which the value was measured."""
        return tuple(line for line in self.beside if line.startswith(OPEN_WARNING))

    @property
    def notes(self) -> str:
        """What a reader must know beside the value: why there is none, what was seen, open warnings."""
        parts = ("" if self.verdict is Verdict.PASS else self.reason_and_seen, *self.warnings)
        return "; ".join(filter(None, parts))

    @property
    def metric_text(self) -> str:
        """Metric and statistic, such as `TTFT P99`."""
        return metric_name(self.metric, self.statistic)

    @property
    def value_text(self) -> str:
        """The value with as many digits as it takes to differ from the bound."""
        return amount(self.value, self.unit, beside=self.bound)

    @property
    def limit_text(self) -> str:
        """The bound, such as `≤ 500 ms`."""
        return limit(self.op, self.bound, self.unit)

    @property
    def interval_text(self) -> str:
        """The confidence bounds, such as `246 to 285 ms`; empty without any."""
        if self.lower is None and self.upper is None:
            return ""
        return f"{amount(self.lower)} to {amount(self.upper, self.unit)}"

    @property
    def confidence_text(self) -> str:
        """The confidence of the bounds in percent."""
        return amount((self.confidence or 0) * 100, "%")


def check_rows(run: RunEvidence) -> tuple[CheckRow, ...]:
    """Return a row for every verdict record, then a row for every planned check without a verdict."""
    planned = {str(check.get("id")): check for check in run.checks}
    judged = [_judged(record, planned.get(str(record.get("check")), {})) for record in run.of("verdict")]
    seen = {row.check for row in judged}
    missing = [_missing(identity, check) for identity, check in planned.items() if identity not in seen]
    return (*judged, *missing)


def counts_of(rows: Sequence[CheckRow]) -> dict[str, int]:
    """Return how often each outcome occurs, the worst first."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    return {name: counts[name] for name in _OUTCOMES if name in counts}


def counts_text(counts: Mapping[str, int], separator: str = ", ") -> str:
    """Return `2 FAIL, 11 PASS, 3 gated`."""
    return separator.join(f"{number:,} {STATUSES.get(name, name)}" for name, number in counts.items())


def worst_rows(rows: Sequence[CheckRow], most: int) -> Sequence[CheckRow]:
    """Return at most so many rows in their order, the worst of them."""
    if len(rows) <= most:
        return rows
    kept = sorted(range(len(rows)), key=lambda index: -_badness(rows[index]))[:most]
    return [rows[index] for index in sorted(kept)]


def _badness(row: CheckRow) -> int:
    return row.verdict.badness * 2 + (row.status == "") if row.decides else 0


def _judged(record: Mapping[str, Any], planned: Mapping[str, Any]) -> CheckRow:
    bounds, skipped, beside = mapping(record.get("bounds")), _text(record, "skipped"), record.get("beside")
    whole = {**planned, **{name: value for name, value in record.items() if value not in (None, "")}}
    return CheckRow(
        **_planned(_text(whole, "check", "id"), whole),
        verdict=_verdict(record.get("verdict")),
        status=skipped if skipped in STATUSES else "",
        value=_shown(whole, record.get("value")),
        count=record.get("count") if isinstance(record.get("count"), int) else None,
        lower=_shown(whole, bounds.get("lower")),
        upper=_shown(whole, bounds.get("upper")),
        confidence=number_of(bounds.get("confidence")),
        reason=_text(record, "reason"),
        detail=_text(record, "detail"),
        margin=number_of(record.get("margin")),
        gated_by=_text(record, "gated_by"),
        message=_text(record, "message"),
        layer=_text(record, "layer"),
        cause=_text(record, "cause"),
        diagnosis=tuple(mappings(record.get("diagnosis"))),
        beside=tuple(map(str, beside)) if isinstance(beside, list | tuple) else (),
    )


def _missing(identity: str, check: Mapping[str, Any]) -> CheckRow:
    message = "asked, but the run has no record of it"
    return CheckRow(**_planned(identity, check), verdict=Verdict.UNKNOWN, status="no_record", message=message)


def _planned(identity: str, check: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that the plan knows."""
    names = ("slo", "stage", "entity", "metric", "statistic", "op", "severity", "load", "hint", "definition")
    return {
        "check": identity,
        **{name: _text(check, name) for name in names},
        "unit": as_shown(check.get("metric"), None, _text(check, "unit")[:24])[1],
        "bound": _shown(check, check.get("bound")),
        "source": _text(check, "slo_source", "source"),
    }


def _shown(check: Mapping[str, Any], value: Any) -> float | None:
    return as_shown(check.get("metric"), number_of(value), _text(check, "unit"))[0]


def _verdict(value: Any) -> Verdict:
    try:
        return Verdict(str(value))
    except ValueError:
        return Verdict.UNKNOWN


def _text(record: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if record.get(name) not in (None, ""):
            return str(record[name])
    return ""
