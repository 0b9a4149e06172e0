"""`rackgate checks`: every check, its bound and source, and the scenarios that prove that it can fail."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.nouns.slo import Slo


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("checks", help="list every check and its proofs", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def describe_checks() -> dict[str, Any]:
    """Return every shipped check with its proofs, and a summary.

    A check is `fail_proven` if a scenario makes it FAIL (or WARN, by its severity), and `unknown_proven` if
    one makes it UNKNOWN because of its own input. The project's tests run every proof.
    """
    from rackgate.config.acceptance_file import load_acceptance
    from rackgate.config.acceptance_tables import PROFILES
    from rackgate.metrics.shipped import shipped_registry
    from rackgate.nouns.slo import Severity

    registry = shipped_registry()
    metrics = registry.metrics
    rows: dict[str, Slo] = {}
    profiles: dict[str, list[str]] = {}
    for profile in PROFILES:
        acceptance = load_acceptance(None, profile, metrics=metrics, target=None)
        registry.add_probes(acceptance.probes)
        for row in acceptance.slos:
            rows.setdefault(row.id, row)
            profiles.setdefault(row.id, []).append(profile)
    proofs = _proofs()
    checks = [
        {
            "id": row.id,
            "stage": row.stage,
            "metric": row.metric,
            "statistic": row.statistic,
            "definition": metrics[row.metric].definition,
            "unit": row.unit,
            "limit": row.limit,
            "scope": str(row.scope),
            "load": row.load,
            "profiles": profiles[row.id],
            "source": row.source,
            "fails_in": proofs.get((row.id, "WARN" if row.severity is Severity.WARN else "FAIL"), []),
            "unknown_in": proofs.get((row.id, "UNKNOWN"), []),
        }
        for row in rows.values()
    ]
    return {
        "checks": checks,
        "summary": {
            "checks": len(checks),
            "fail_proven": sum(1 for check in checks if check["fails_in"]),
            "unknown_proven": sum(1 for check in checks if check["unknown_in"]),
        },
    }


def _proofs() -> dict[tuple[str, str], list[dict[str, str]]]:
    from rackgate.simulator.scenarios import scenarios

    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for scenario in scenarios().values():
        for proof in scenario.proofs:
            for check in proof.checks:
                entry = {
                    "scenario": scenario.name,
                    "entity": proof.entity,
                    "cause": proof.cause,
                    "profile": proof.profile,
                }
                found.setdefault((check, str(proof.verdict)), []).append(entry)
    return found


def _run(options: argparse.Namespace) -> int:
    described = describe_checks()
    if options.json:
        sys.stdout.write(json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        return 0
    write = sys.stdout.write
    for check in described["checks"]:
        write(f"{check['id']}  {check['limit']}  per {check['scope']}  ({', '.join(check['profiles'])})\n")
        write(f"    {check['metric']}: {check['definition']}\n    source: {check['source']}\n")
        for word, key in (("FAIL", "fails_in"), ("UNKNOWN", "unknown_in")):
            for proof in check[key]:
                write(f"    {word:<8}in {proof['scenario']} @ {proof['entity']}: {proof['cause']}\n")
    summary = described["summary"]
    write(
        f"{summary['checks']} checks, {summary['fail_proven']} proven to fail,"
        f" {summary['unknown_proven']} proven to be UNKNOWN without their input\n"
    )
    return 0
