"""Every check that was asked, as one row each: judged, gated, declared absent, or never reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackgate.nouns.measurement import OPEN_WARNING
from rackgate.nouns.verdict import Verdict
from rackgate_reports.evidence import RunEvidence, number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


STATUSES = {
    "gated": "gated",
    "declared": "declared absent",
    "not_assessed": "not assessed",
    "no_record": "never reached",
}
"""Why a check has no verdict of its own, as people read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One check. `status` is a key of STATUSES, empty if the check was judged.

    `margin` is a share of the bound, positive inside it; `lower` and `upper` are confidence bounds. Of an
    unmet check `diagnosis` lists what is known, the outermost layer first, `cause` names the known failure
    behind it and `layer` where that lives; `beside` is what else was seen in the same seconds.
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
    def decides(self) -> bool:
        """True unless the target declared the thing absent or the vantage cannot see it."""
        return self.status not in ("declared", "not_assessed")

    @property
    def words(self) -> str:
        """What was seen beside the value: the detail, else a message that is more than this row again."""
        if self.detail:
            return self.detail
        return "" if self.message.startswith(self.verdict) else self.message

    @property
    def warnings(self) -> tuple[str, ...]:
        """The open warnings under which the value was measured."""
        return tuple(line for line in self.beside if line.startswith(OPEN_WARNING))

    @property
    def troubles(self) -> bool:
        """True if the check keeps the run from being accepted by what it saw itself."""
        return not self.verdict.accepted and self.status == ""


def check_rows(run: RunEvidence) -> tuple[CheckRow, ...]:
    """Return a row for every verdict record, then one for every planned check that has none."""
    planned = {str(check.get("id")): check for check in run.checks}
    judged = [_judged(record, planned.get(str(record.get("check")), {})) for record in run.of("verdict")]
    seen = {row.check for row in judged}
    missing = [_missing(identity, check) for identity, check in planned.items() if identity not in seen]
    return (*judged, *missing)


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


def _judged(record: Mapping[str, Any], planned: Mapping[str, Any]) -> CheckRow:
    bounds = record.get("bounds")
    bounds = bounds if isinstance(bounds, dict) else {}
    skipped = _text(record, "skipped")
    whole = {**planned, **{name: value for name, value in record.items() if value not in (None, "")}}
    return CheckRow(
        check=_text(whole, "check", "id"),
        slo=_text(whole, "slo"),
        stage=_text(whole, "stage"),
        entity=_text(whole, "entity"),
        verdict=_verdict(record.get("verdict")),
        status=skipped if skipped in STATUSES else "",
        metric=_text(whole, "metric"),
        statistic=_text(whole, "statistic"),
        value=number_of(record.get("value")),
        unit=_text(whole, "unit")[:24],
        count=record.get("count") if isinstance(record.get("count"), int) else None,
        lower=number_of(bounds.get("lower")),
        upper=number_of(bounds.get("upper")),
        confidence=number_of(bounds.get("confidence")),
        reason=_text(record, "reason"),
        detail=_text(record, "detail"),
        op=_text(whole, "op"),
        bound=number_of(whole.get("bound")),
        margin=number_of(record.get("margin")),
        severity=_text(whole, "severity"),
        load=_text(whole, "load"),
        source=_text(whole, "slo_source", "source"),
        hint=_text(whole, "hint"),
        definition=_text(whole, "definition"),
        gated_by=_text(record, "gated_by"),
        message=_text(record, "message"),
        layer=_text(record, "layer"),
        cause=_text(record, "cause"),
        diagnosis=tuple(one for one in _listed(record.get("diagnosis")) if isinstance(one, dict)),
        beside=tuple(map(str, _listed(record.get("beside")))),
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _missing(identity: str, check: Mapping[str, Any]) -> CheckRow:
    return CheckRow(
        check=identity,
        slo=_text(check, "slo"),
        stage=_text(check, "stage"),
        entity=_text(check, "entity"),
        verdict=Verdict.UNKNOWN,
        status="no_record",
        metric=_text(check, "metric"),
        statistic=_text(check, "statistic"),
        unit=_text(check, "unit")[:24],
        op=_text(check, "op"),
        bound=number_of(check.get("bound")),
        severity=_text(check, "severity"),
        load=_text(check, "load"),
        source=_text(check, "source"),
        hint=_text(check, "hint"),
        definition=_text(check, "definition"),
        message="asked, but the run has no record of it",
    )
