"""`rackgate judge --from`: judge the results of another load generator by our rows."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.problems import ConfigError
from rackgate.judging.judge import judge
from rackgate.loadgen.results.foreign import ForeignReport, read_foreign
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.slo import Check, Scope, Slo
from rackgate.nouns.verdict import Judgement, Verdict


def judge_foreign(options: argparse.Namespace) -> int:
    """Judge one file, print each row and return 0 if all are met. Raises `ForeignError`, `ConfigError`."""
    registry = shipped_registry()
    report = read_foreign(options.source)
    profile = options.profile or "smoke"
    acceptance = load_acceptance(options.slo, profile, metrics=registry.metrics, target=None)
    rows = [row for row in acceptance.slos if row.load is not None and options.load in (None, row.load)]
    if not rows:
        known = ", ".join(sorted({row.load for row in acceptance.slos if row.load is not None}))
        raise ConfigError([f"no row of a load {options.load!r}; valid: {known}"])
    judged = [(row, *_judged(row, report)) for row in rows]
    if options.json:
        sys.stdout.write(json.dumps([_plain(*entry) for entry in judged], indent=2) + "\n")
    else:
        sys.stdout.write(f"{report.tool}: {report.ok} ok, {_failed(report)} failed\n")
        sys.stdout.write("".join(_line(*entry) for entry in judged))
    return int(any(str(judgement.verdict) not in ("PASS", "WARN") for _, _, judgement in judged))


def _failed(report: ForeignReport) -> str:
    return "an unknown number" if report.failed is None else str(report.failed)


def _judged(row: Slo, report: ForeignReport) -> tuple[Measurement, Judgement]:
    """Return the measurement and the verdict of a row, UNKNOWN for what the file cannot show."""
    measured = report.measurement(row.metric, row.statistic, row.unit)
    if row.scope not in (Scope.RACK, Scope.POOL) or row.window != "load":
        text = f"{report.tool}'s file does not tell one {row.scope} from another"
        text = text if row.window == "load" else f"it holds no {row.window} window"
        measured = missing(row.metric, "rack", row.unit, Reason.UNSUPPORTED, text)
    judgement = judge(Check(slo=row, entity="rack"), measured)
    if row.metric == "error_rate" and judgement.verdict is Verdict.PASS:
        text = "it counts streams that end without a terminal signal as successes: errors may be missing"
        judgement = Judgement(
            verdict=Verdict.UNKNOWN, reason=Reason.UNSUPPORTED, detail=f"{report.tool}: {text}"
        )
    return measured, judgement


def _line(row: Slo, measured: Measurement, judgement: Judgement) -> str:
    value = "-" if measured.value is None else f"{measured.value:.4g} {row.unit}"
    why = f"  {judgement.detail}" if judgement.detail else ""
    return f"{judgement.verdict!s:<8}{row.id}  {row.limit}  {value}{why}\n"


def _plain(row: Slo, measured: Measurement, judgement: Judgement) -> dict[str, Any]:
    return {
        "check": row.id,
        "limit": row.limit,
        "verdict": str(judgement.verdict),
        "reason": judgement.reason,
        "detail": judgement.detail,
        "value": measured.value,
        "count": measured.count,
        "bounds": None if measured.bounds is None else asdict(measured.bounds),
        "source": measured.source,
    }
