"""The acceptance rows of a synthetic run and verdicts on its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from synthetic_scenario import Scenario

TTFT = "first token - sent (closed load) or - scheduled (open load); failed requests count as infinite"
THROUGHPUT = "output tokens counted by the server in the steady window / its length"


def slo_rows(scenario: Scenario) -> list[dict[str, Any]]:
    """SLO rows: id, stage, metric, statistic, unit, op, bound, scope, load, definition, hint, good value."""

    def row(
        identity: str, metric: str, statistic: str, unit: str, op: str, bound: float, **more: Any
    ) -> dict:
        return {
            "slo": identity,
            "stage": identity.partition(".")[0],
            "metric": metric,
            "statistic": statistic,
            "unit": unit,
            "op": op,
            "bound": bound,
            "severity": "blocker",
            "scope": "rack",
            "load": None,
            "source": "ours",
            "hint": "",
            "definition": metric,
            "entities": ["rack"],
            "spread": 0.05,
            **more,
        }

    cards = {"scope": "card", "entities": scenario.entities}
    ttft = {
        "definition": TTFT,
        "source": "MLPerf inference, interactive",
        "hint": "Compare clocks and throttle reasons with its peers; then the engine's queue.",
    }
    return [
        row(
            "selfcheck.measurement_error_p99",
            "measurement_error_ms",
            "p99",
            "ms",
            "<=",
            1.0,
            good=0.21,
            definition="reported TTFT - true TTFT of a scripted server",
        ),
        row(
            "selfcheck.schedule_lag_p99",
            "schedule_lag_ms",
            "p99",
            "ms",
            "<=",
            5.0,
            good=1.4,
            definition="sent - scheduled: the load generator's own fault",
        ),
        row(
            "preflight.cards",
            "card_count",
            "value",
            "cards",
            "==",
            len(scenario.entities),
            good=len(scenario.entities),
            spread=0,
            source="inventory",
            definition="cards that answer",
        ),
        row(
            "preflight.driver",
            "driver_mismatches",
            "value",
            "nodes",
            "==",
            0,
            good=0,
            spread=0,
            source="sichek",
            definition="nodes whose driver differs from the pin",
        ),
        row(
            "preflight.clock_offset",
            "clock_offset_ms",
            "value",
            "ms",
            "<=",
            10,
            good=0.4,
            scope="node",
            entities=[f"node{n}" for n in range(1, scenario.nodes + 1)],
            source="sichek",
            definition="offset of the node's clock to the load machine's",
        ),
        row(
            "single_card.ttft_p50", "ttft_ms", "p50", "ms", "<=", 120, good=62, load="single", **cards, **ttft
        ),
        row(
            "single_card.ttft_p95",
            "ttft_ms",
            "p95",
            "ms",
            "<=",
            250,
            good=108,
            load="single",
            **cards,
            **ttft,
        ),
        row(
            "single_card.error_rate",
            "error_rate",
            "value",
            "ratio",
            "<=",
            0.01,
            good=0.0,
            spread=0,
            load="single",
            definition="requests that are not ok / attempted; refused ones count",
            **cards,
        ),
        row(
            "single_card.throttle_time",
            "throttle_time_s",
            "value",
            "s",
            "<=",
            0.1,
            good=0.0,
            spread=0,
            **cards,
            source="DCGM",
            definition="time in which clock_event_reasons & 0xE8 is not zero",
            hint="See power cap, airflow and the cold plate of this card.",
        ),
        row(
            "single_card.temperature",
            "temperature_c",
            "value",
            "°C",
            "<=",
            85,
            good=64,
            **cards,
            source="sichek",
            definition="time-weighted mean of the last fifth of the load",
        ),
        row(
            "two_card.scaling_efficiency",
            "scaling_efficiency",
            "value",
            "ratio",
            ">=",
            0.8,
            good=0.94,
            scope="pair",
            entities=["node1/gpu0+node1/gpu1"],
            load="pair",
            definition="throughput(2 cards) / (2 x throughput(1 card))",
        ),
        row("cross_node.ttft_p99", "ttft_ms", "p99", "ms", "<=", 500, good=212, load="gateway", **ttft),
        row(
            "cross_node.balance",
            "balance",
            "value",
            "ratio",
            "<=",
            1.2,
            good=1.06,
            load="gateway",
            severity="warn",
            definition="max / mean of requests per card",
        ),
        row("soak.ttft_p99", "ttft_ms", "p99", "ms", "<=", 450, good=231, load="steady", **ttft),
        row(
            "soak.error_rate",
            "error_rate",
            "value",
            "ratio",
            "<=",
            0.001,
            good=0.0,
            spread=0,
            load="steady",
            definition="requests that are not ok / attempted; refused ones count",
        ),
        row(
            "soak.output_token_throughput",
            "output_token_throughput",
            "value",
            "tok/s",
            ">=",
            900,
            good=1284,
            load="steady",
            definition=THROUGHPUT,
        ),
        row(
            "soak.drift",
            "drift",
            "value",
            "ratio",
            ">=",
            0.97,
            good=0.995,
            spread=0.002,
            load="steady",
            definition="last tenth of a soak against its first tenth",
        ),
        row(
            "fault_injection.survivor_ttft_p99",
            "survivor_ttft_ms",
            "p99",
            "ms",
            "<=",
            900,
            good=388,
            load="fault",
            definition="TTFT over requests served by engines that the fault did not hit",
        ),
        row(
            "fault_injection.recovery",
            "recovery_s",
            "value",
            "s",
            "<=",
            60,
            good=11.2,
            load="fault",
            definition="proven effect to the first window that meets the SLO again",
        ),
        row(
            "batch_retry.lost",
            "lost_tasks",
            "value",
            "tasks",
            "==",
            0,
            good=0,
            spread=0,
            definition="tasks without a terminal record",
            source="Jepsen total-queue",
        ),
        row(
            "batch_retry.duplicated",
            "duplicated_tasks",
            "value",
            "tasks",
            "==",
            0,
            good=0,
            spread=0,
            definition="tasks with more than one terminal record",
            source="Jepsen total-queue",
        ),
        *(
            row(
                f"preflight.extra_{n:05d}",
                "probe",
                "value",
                "units",
                "<=",
                10,
                good=5,
                definition="a site probe",
            )
            for n in range(scenario.extra_checks)
        ),
    ]


def _holds(op: str, value: float, bound: float) -> bool:
    return {"<=": value <= bound, ">=": value >= bound, "==": value == bound}[op]


def verdict_payload(row: dict[str, Any], entity: str, value: float | None, **more: Any) -> dict[str, Any]:
    holds = value is not None and _holds(row["op"], value, row["bound"])
    bad = "WARN" if row["severity"] == "warn" else "FAIL"
    bounds = None
    if value is not None and row["statistic"].startswith("p") and np.isfinite(value):
        bounds = {"lower": value * 0.93, "upper": value * 1.08, "confidence": 0.95}
    margin = None
    if value is not None and row["bound"]:
        sign = -1 if row["op"] == "<=" else 1
        margin = sign * (value - row["bound"]) / row["bound"]
    verdict = "UNKNOWN" if value is None else "PASS" if holds else bad
    return {
        "check": f"{row['slo']} @ {entity}",
        "slo": row["slo"],
        "stage": row["stage"],
        "entity": entity,
        "verdict": verdict,
        "metric": row["metric"],
        "statistic": row["statistic"],
        "value": value,
        "unit": row["unit"],
        "count": 420 if row["load"] else 1,
        "bounds": bounds,
        "reason": None,
        "detail": "",
        "op": row["op"],
        "bound": row["bound"],
        "limit": f"{row['op']} {row['bound']} {row['unit']}",
        "margin": margin,
        "severity": row["severity"],
        "scope": row["scope"],
        "load": row["load"],
        "slo_source": row["source"],
        "hint": row["hint"],
        "definition": row["definition"],
        "skipped": "",
        "gated_by": "",
        "duration_s": 0.01,
        "message": "",
        **more,
    }
