"""Run folders as a real run leaves them, made from a seed: 2 nodes x 2 cards, eight stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rackgate.record import Record, RecordLog
from rackgate.slo import STAGES

if TYPE_CHECKING:
    from pathlib import Path

START_NS = 5_000_000_000_000
STARTED = datetime(2026, 3, 9, 8, 0, tzinfo=UTC)
TTFT = "first token - sent (closed load) or - scheduled (open load); failed requests count as infinite"
THROUGHPUT = "output tokens counted by the server in the steady window / its length"


@dataclass
class Writer:
    """Appends records with a clock that the caller moves."""

    log: RecordLog
    now_s: float = 0.0
    seq: int = 0

    @property
    def now_ns(self) -> int:
        return START_NS + int(self.now_s * 1e9)

    def add(self, kind: str, **payload: Any) -> None:
        at = (STARTED + timedelta(seconds=self.now_s)).isoformat().replace("+00:00", "Z")
        self.log.append(Record(seq=self.seq, at=at, t_ns=self.now_ns, kind=kind, payload=payload))
        self.seq += 1


@dataclass
class Scenario:
    """What a synthetic run is like."""

    nodes: int = 2
    cards: int = 2
    grade: str = "simulated"
    slow: str = ""
    interrupted_in: str = ""
    partial: bool = False
    stretch: float = 1.0
    requests: int = 420
    telemetry_hz: float = 1.0
    extra_checks: int = 0
    note: str = ""
    accepted: bool | None = None
    headline: str = ""
    scale_s: dict[str, float] = field(
        default_factory=lambda: {
            "selfcheck": 6, "preflight": 5, "single_card": 40, "two_card": 22,
            "cross_node": 24, "soak": 90, "fault_injection": 45, "batch_retry": 12,
        }
    )  # fmt: skip

    @property
    def entities(self) -> list[str]:
        return [f"node{n}/gpu{c}" for n in range(1, self.nodes + 1) for c in range(self.cards)]


def _run_payload(scenario: Scenario) -> dict[str, Any]:
    nodes = [
        {
            "name": f"node{n}",
            "exporter_url": f"http://node{n}:9400/metrics",
            "cards": [
                {
                    "name": f"node{n}/gpu{c}",
                    "index": c,
                    "uuid": f"GPU-{n:04x}{c:04x}-1f2e",
                    "serial": f"165042{n:02d}{c:02d}",
                    "sku": "H100-SXM5-80GB",
                }
                for c in range(scenario.cards)
            ],
        }
        for n in range(1, scenario.nodes + 1)
    ]
    return {
        "run_id": "20260309T080000Z-smoke-7f3a",
        "profile": "smoke",
        "grade": scenario.grade,
        "scenario": "slow_card" if scenario.slow else None,
        "partial": scenario.partial,
        "partial_why": ["-k ttft"] if scenario.partial else [],
        "command_line": "pytest -m rack_acceptance --rack-target rack.toml --rack-profile smoke",
        "seed": 20260309,
        "stages": list(STAGES),
        "target": {
            "name": "hall-b-rack-07",
            "model": "llama-3.1-8b-instruct",
            "vantage": "operator",
            "source": "rack.toml",
            "digest": "9c1e" * 16,
            "nodes": nodes,
            "engines": [
                {
                    "name": f"engine-{entity}", "entity": entity, "launcher": "simulated", "protocol": "openai",
                    "model": "llama-3.1-8b-instruct", "pool": "gpu", "cards": [entity], "nodes": [entity[:5]],
                    "url": "http://127.0.0.1:18000",
                }
                for entity in scenario.entities
            ],
            "gateway": {"url": "http://127.0.0.1:18080"},
            "may_break": ["kill", "pause"],
            "prices": None,
        },
        "acceptance": {
            "files": ["defaults.toml", "site.toml"],
            "digest": "44ab" * 16,
            "overrides": [
                {"id": "soak.ttft_p99", "fields": ["bound"], "reason": "contract 2026-11, clause 4.2"}
            ],
        },
        "loads": {"steady": {"prompt_tokens": 256, "output_tokens": 64, "concurrency": 4}},
        "versions": {"rackgate": "0.1.0", "pytest": "9.2.0", "python": "3.11.9", "numpy": "2.3.1"},
        "host": {"node": "loader-1", "kernel": "6.8.0", "cores": 16},
        "excluded": [],
        "continues": None,
    }  # fmt: skip


def _rows(scenario: Scenario) -> list[dict[str, Any]]:
    """SLO rows: id, stage, metric, statistic, unit, op, bound, scope, load, definition, hint, good value."""

    def row(identity: str, metric: str, statistic: str, unit: str, op: str, bound: float, **more: Any) -> dict:
        return {
            "slo": identity, "stage": identity.split(".")[0], "metric": metric, "statistic": statistic,
            "unit": unit, "op": op, "bound": bound, "severity": "blocker", "scope": "rack", "load": None,
            "source": "ours", "hint": "", "definition": metric, "entities": ["rack"], "spread": 0.05, **more,
        }  # fmt: skip

    cards = {"scope": "card", "entities": scenario.entities}
    ttft = {
        "definition": TTFT,
        "source": "MLPerf inference, interactive",
        "hint": "Compare clocks and throttle reasons with its peers; then the engine's queue.",
    }
    return [
        row("selfcheck.measurement_error_p99", "measurement_error_ms", "p99", "ms", "<=", 1.0, good=0.21,
            definition="reported TTFT - true TTFT of a scripted server"),
        row("selfcheck.schedule_lag_p99", "schedule_lag_ms", "p99", "ms", "<=", 5.0, good=1.4,
            definition="sent - scheduled: the load generator's own fault"),
        row("preflight.cards", "card_count", "value", "cards", "==", len(scenario.entities),
            good=len(scenario.entities), spread=0, source="inventory", definition="cards that answer"),
        row("preflight.driver", "driver_mismatches", "value", "nodes", "==", 0, good=0, spread=0,
            source="sichek", definition="nodes whose driver differs from the pin"),
        row("preflight.clock_offset", "clock_offset_ms", "value", "ms", "<=", 10, good=0.4, scope="node",
            entities=[f"node{n}" for n in range(1, scenario.nodes + 1)], source="sichek",
            definition="offset of the node's clock to the load machine's"),
        row("single_card.ttft_p50", "ttft_ms", "p50", "ms", "<=", 120, good=62, load="single", **cards, **ttft),
        row("single_card.ttft_p95", "ttft_ms", "p95", "ms", "<=", 250, good=108, load="single", **cards, **ttft),
        row("single_card.error_rate", "error_rate", "value", "ratio", "<=", 0.01, good=0.0, spread=0,
            load="single", definition="requests that are not ok / attempted; refused ones count", **cards),
        row("single_card.throttle_time", "throttle_time_s", "value", "s", "<=", 0.1, good=0.0, spread=0, **cards,
            source="DCGM", definition="time in which clock_event_reasons & 0xE8 is not zero",
            hint="See power cap, airflow and the cold plate of this card."),
        row("single_card.temperature", "temperature_c", "value", "°C", "<=", 85, good=64, **cards, source="sichek",
            definition="time-weighted mean of the last fifth of the load"),
        row("two_card.scaling_efficiency", "scaling_efficiency", "value", "ratio", ">=", 0.8, good=0.94,
            scope="pair", entities=["node1/gpu0+node1/gpu1"], load="pair",
            definition="throughput(2 cards) / (2 x throughput(1 card))"),
        row("cross_node.ttft_p99", "ttft_ms", "p99", "ms", "<=", 500, good=212, load="gateway", **ttft),
        row("cross_node.balance", "balance", "value", "ratio", "<=", 1.2, good=1.06, load="gateway",
            severity="warn", definition="max / mean of requests per card"),
        row("soak.ttft_p99", "ttft_ms", "p99", "ms", "<=", 450, good=231, load="steady", **ttft),
        row("soak.error_rate", "error_rate", "value", "ratio", "<=", 0.001, good=0.0, spread=0, load="steady",
            definition="requests that are not ok / attempted; refused ones count"),
        row("soak.output_token_throughput", "output_token_throughput", "value", "tok/s", ">=", 900, good=1284,
            load="steady", definition=THROUGHPUT),
        row("soak.drift", "drift", "value", "ratio", ">=", 0.97, good=0.995, spread=0.002, load="steady",
            definition="last tenth of a soak against its first tenth"),
        row("fault_injection.survivor_ttft_p99", "survivor_ttft_ms", "p99", "ms", "<=", 900, good=388,
            load="fault", definition="TTFT over requests served by engines that the fault did not hit"),
        row("fault_injection.recovery", "recovery_s", "value", "s", "<=", 60, good=11.2, load="fault",
            definition="proven effect to the first window that meets the SLO again"),
        row("batch_retry.lost", "lost_tasks", "value", "tasks", "==", 0, good=0, spread=0,
            definition="tasks without a terminal record", source="Jepsen total-queue"),
        row("batch_retry.duplicated", "duplicated_tasks", "value", "tasks", "==", 0, good=0, spread=0,
            definition="tasks with more than one terminal record", source="Jepsen total-queue"),
        *(
            row(f"preflight.extra_{n:05d}", "probe", "value", "units", "<=", 10, good=5, definition="a site probe")
            for n in range(scenario.extra_checks)
        ),
    ]  # fmt: skip


def _holds(op: str, value: float, bound: float) -> bool:
    return {"<=": value <= bound, ">=": value >= bound, "==": value == bound}[op]


def _verdict_payload(row: dict[str, Any], entity: str, value: float | None, **more: Any) -> dict[str, Any]:
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
        "check": f"{row['slo']} @ {entity}", "slo": row["slo"], "stage": row["stage"], "entity": entity,
        "verdict": verdict, "metric": row["metric"], "statistic": row["statistic"], "value": value,
        "unit": row["unit"], "count": 420 if row["load"] else 1, "bounds": bounds, "reason": None,
        "detail": "", "op": row["op"], "bound": row["bound"], "limit": f"{row['op']} {row['bound']} {row['unit']}",
        "margin": margin, "severity": row["severity"], "scope": row["scope"], "load": row["load"],
        "slo_source": row["source"], "hint": row["hint"], "definition": row["definition"], "skipped": "",
        "gated_by": "", "duration_s": 0.01, "message": "", **more,
    }  # fmt: skip


def _samples(
    path: Path, rng: np.random.Generator, start_ns: int, length_s: float, engines: list[str], scenario: Scenario,
    requests: int, fault: tuple[float, float, str] | None,
) -> dict[str, int]:  # fmt: skip
    """Write one load's samples; return the outcomes."""
    n = requests * len(engines)
    scheduled = start_ns + np.sort(rng.uniform(0.02, 0.96, n) * length_s * 1e9).astype(np.int64)
    engine = np.array(engines)[np.arange(n) % len(engines)]
    ttft_ms = 60 * np.exp(rng.normal(0, 0.28, n)) + np.where(rng.random(n) < 0.02, rng.exponential(110, n), 0)
    ttft_ms = np.where(engine == scenario.slow, ttft_ms * 4.4, ttft_ms)
    outcome = np.full(n, "ok", dtype=object)
    if fault is not None:
        within = (scheduled > fault[0]) & (scheduled < fault[1])
        ttft_ms = np.where(within, ttft_ms * 1.9, ttft_ms)
        outcome[within & (engine == fault[2])] = "connect_error"
    ok = outcome == "ok"
    sent = scheduled + rng.integers(20_000, 900_000, n)
    first = sent + (ttft_ms * 1e6).astype(np.int64)
    done = first + rng.integers(300_000_000, 700_000_000, n)
    table = pa.table(
        {
            "request_id": [f"r{i}" for i in range(n)],
            "engine": pa.array(engine.tolist()).dictionary_encode(),
            "outcome": pa.array(outcome.tolist()),
            "warmup": np.arange(n) < len(engines),
            "scheduled_ns": scheduled,
            "sent_ns": sent,
            "first_token_ns": pa.array(first, mask=~ok),
            "done_ns": done,
            "output_tokens": pa.array(np.full(n, 64), mask=~ok),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    names, counts = np.unique(outcome.astype(str), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _telemetry(
    folder: Path, rng: np.random.Generator, windows: dict[str, tuple[float, float]], end_s: float,
    scenario: Scenario, fault: tuple[float, float, str] | None,
) -> None:  # fmt: skip
    """Write power, temperature and clock event bits of every card in two parts."""
    at_s = np.arange(0, end_s, 1 / scenario.telemetry_hz)
    busy = np.zeros(len(at_s))
    for stage, (start, stop) in windows.items():
        level = {"selfcheck": 0.0, "preflight": 0.05, "batch_retry": 0.5}.get(stage, 0.85)
        busy = np.where((at_s >= start) & (at_s < stop), level, busy)
    rows: dict[str, list[Any]] = {name: [] for name in ("t_ns", "node", "entity", "field", "value", "unit")}
    for index, entity in enumerate(scenario.entities):
        load = busy.copy()
        if fault is not None and entity == fault[2]:
            load[(START_NS + at_s * 1e9 > fault[0]) & (START_NS + at_s * 1e9 < fault[1])] = 0.0
        slow = entity == scenario.slow
        if slow:
            load[at_s > windows["single_card"][1]] = 0.0
        power = 95 + load * (470 if slow else 560) + rng.normal(0, 9, len(at_s)) + 6 * index % 30
        warm = np.zeros(len(at_s))
        level = 0.0
        for i, value in enumerate(load):
            level += (value - level) * min(1, 0.12 / scenario.telemetry_hz)
            warm[i] = level
        celsius = 31 + warm * (58 if slow else 38) + rng.normal(0, 0.4, len(at_s)) + index % 5
        bits = np.where(slow & (celsius > 62), 0x48, np.where(load == 0, 1, 0))
        series = (("power_w", power, "W"), ("temperature_c", celsius, "°C"), ("clock_event_reasons", bits, ""))
        for name, values, unit in series:
            rows["t_ns"].append(START_NS + (at_s * 1e9).astype(np.int64))
            rows["value"].append(values.astype(float))
            for column, text in (("node", entity.split("/")[0]), ("entity", entity), ("field", name), ("unit", unit)):
                rows[column].append(pa.array([text] * len(at_s)).dictionary_encode().cast(pa.string()))
    arrays = {
        name: np.concatenate(parts) if name in ("t_ns", "value") else pa.concat_arrays(parts)
        for name, parts in rows.items()
    }
    table = pa.table(arrays)
    table = table.append_column("reason", pa.nulls(len(table), pa.string()))
    half = len(table) // 2
    target = folder / "evidence" / "telemetry.parquet"
    target.mkdir(parents=True)
    pq.write_table(table.slice(0, half), target / "part-0000.parquet")
    pq.write_table(table.slice(half), target / "part-0001.parquet")


def make_run(folder: Path, scenario: Scenario | None = None) -> Path:
    """Write a whole run folder and return it."""
    scenario = scenario or Scenario()
    rng = np.random.default_rng(7)
    (folder / "evidence" / "samples").mkdir(parents=True)
    log = RecordLog(folder / "evidence" / "records.jsonl")
    writer = Writer(log)
    run = _run_payload(scenario)
    writer.add("run", **run)
    rows = _rows(scenario)
    writer.add(
        "plan",
        checks=[
            {"id": f"{row['slo']} @ {entity}", "entity": entity, **{k: row[k] for k in row if k not in ("entities", "good", "spread")}}
            for row in rows
            for entity in row["entities"]
        ],
    )  # fmt: skip
    state = _State(quarantined="", counts={}, fault=None, windows={})
    for stage in STAGES:
        _stage(writer, folder, rng, scenario, rows, stage, state)
        if stage == scenario.interrupted_in:
            break
    _telemetry(folder, rng, state.windows, writer.now_s, scenario, state.fault)
    if not scenario.interrupted_in:
        _end(writer, scenario, state)
    log.close()
    return folder


@dataclass
class _State:
    quarantined: str
    counts: dict[str, int]
    fault: tuple[float, float, str] | None
    windows: dict[str, tuple[float, float]]


def _end(writer: Writer, scenario: Scenario, state: _State) -> None:
    bad = state.counts.get("FAIL", 0) + state.counts.get("UNKNOWN", 0) + state.counts.get("gated", 0)
    accepted = not bad if scenario.accepted is None else scenario.accepted
    total = len(scenario.entities)
    qualified = total - bool(state.quarantined)
    word = "ACCEPTED" if accepted else "NOT ACCEPTED"
    writer.add(
        "end",
        verdict="PASS" if accepted else "FAIL",
        accepted=accepted,
        headline=scenario.headline or f"{word}: {qualified} of {total} cards qualified",
        scope_text=f"tested {total} of {total} cards on {scenario.nodes} nodes",
        counts=state.counts,
        exit_status=int(not accepted),
        partial=scenario.partial,
        partial_why=["-k ttft"] if scenario.partial else [],
        duration_s=writer.now_s,
        records=writer.seq,
        digest=writer.log.digest(),
    )


def _stage(
    writer: Writer, folder: Path, rng: np.random.Generator, scenario: Scenario, rows: list[dict], stage: str,
    state: _State,
) -> None:  # fmt: skip
    begin = writer.now_s
    length = scenario.scale_s[stage] * scenario.stretch
    writer.add("stage", stage=stage, phase="begin", duration_s=None, text="")
    interrupted = stage == scenario.interrupted_in
    if stage == "preflight":
        for entity in scenario.entities:
            writer.add("engine", engine=f"engine-{entity}", entity=entity, state="ready", launcher="simulated",
                       url="http://127.0.0.1:18000", model="llama", cold_start_s=1.9, layer="", message="", hint="")  # fmt: skip
    loads = {row["load"] for row in rows if row["stage"] == stage and row["load"]}
    engines = [entity for entity in scenario.entities if entity != state.quarantined]
    fault: tuple[float, float, str] | None = None
    if stage == "fault_injection" and not interrupted:
        hit = engines[-1]
        fault = (START_NS + (begin + 0.3 * length) * 1e9, START_NS + (begin + 0.62 * length) * 1e9, hit)
        state.fault = fault
        for moment, share in (("intend", 0.29), ("inject", 0.3), ("prove", 0.32), ("heal", 0.6), ("prove_healed", 0.62)):
            writer.now_s = begin + share * length
            writer.add("fault", fault="kill", entity=hit, moment=moment, ok=True, detail="SIGKILL to the main process" if moment == "inject" else "")
    for load in sorted(loads):
        start_ns = START_NS + int((begin + 0.1 * length) * 1e9)
        path = folder / "evidence" / "samples" / f"{stage}-{load}.parquet"
        outcomes = _samples(path, rng, start_ns, 0.85 * length, engines, scenario,
                            scenario.requests * (3 if stage == "soak" else 1), fault)  # fmt: skip
        writer.now_s = begin + 0.95 * length
        started = sum(outcomes.values())
        writer.add("load", stage=stage, load=load, label=f"{stage}/{load}", engines=engines, start_ns=start_ns,
                   end_ns=writer.now_ns, steady_start_ns=start_ns + int(0.05e9 * length), steady_end_ns=writer.now_ns,
                   looks=[scenario.requests], stopped_because="all looks done",
                   counters={"scheduled": started, "started": started, "dropped": 0, "outcomes": outcomes},
                   reconciles=True, peak_in_flight=4, samples=f"samples/{path.name}",
                   origin="sent" if load == "single" else "scheduled", reason=None, detail="")  # fmt: skip
        _numbers(writer, stage, load, started / length, outcomes, started)
    writer.now_s = begin + length
    if not interrupted:
        for row in (row for row in rows if row["stage"] == stage):
            for entity in row["entities"]:
                _judge(writer, rng, scenario, row, entity, state)
        writer.add("stage", stage=stage, phase="end", duration_s=length, text=scenario.note)
    state.windows[stage] = (begin, writer.now_s)


def _numbers(writer: Writer, stage: str, load: str, rate: float, outcomes: dict[str, int], n: int) -> None:
    errors = 1 - outcomes.get("ok", 0) / n
    for metric, statistic, value, unit in (
        ("output_token_throughput", "value", rate * 64, "tok/s"),
        ("request_throughput", "value", rate, "1/s"),
        ("ttft_ms", "p99", "inf" if errors > 0.01 else 218.4, "ms"),
        ("error_rate", "value", errors, "ratio"),
        ("power_w", "value", 2268.0, "W"),
        ("temperature_c", "value", 64.2, "°C"),
    ):
        writer.add("measurement", stage=stage, load=load, metric=metric, statistic=statistic, entity="rack",
                   value=value, unit=unit, count=n, bounds=None, reason=None, detail="", source="samples",
                   definition=TTFT if metric == "ttft_ms" else THROUGHPUT if "token" in metric else metric,
                   headline=metric != "request_throughput")  # fmt: skip


def _judge(
    writer: Writer, rng: np.random.Generator, scenario: Scenario, row: dict, entity: str, state: _State
) -> None:
    value: float | None = row["good"] * (1 + row["spread"] * float(rng.normal()))
    more: dict[str, Any] = {}
    slow = scenario.slow and entity == scenario.slow
    if state.quarantined and state.quarantined in entity.split("+") and row["stage"] not in ("single_card",):
        payload = _verdict_payload(row, entity, None, reason="gated", skipped="gated",
                                   gated_by=f"single_card.ttft_p50 @ {scenario.slow}",
                                   detail=f"{state.quarantined} is quarantined")  # fmt: skip
        writer.add("verdict", **payload)
        state.counts["gated"] = state.counts.get("gated", 0) + 1
        return
    if slow and row["slo"] in ("single_card.ttft_p50", "single_card.ttft_p95"):
        value = row["bound"] * (2.2 if row["slo"].endswith("p50") else 1.9)
    if slow and row["slo"] == "single_card.throttle_time":
        value, more = 23.4, {"message": "clock_event_reasons 0x48 (HW slowdown, HW thermal) for 23.4 s"}
    if scenario.slow and row["slo"] == "cross_node.balance":
        value = 1.34
    if slow and row["slo"] == "single_card.temperature":
        value, more = None, {"reason": "stale", "detail": "the exporter repeated one value for 31 s"}
    payload = _verdict_payload(row, entity, value, **more)
    writer.add("verdict", **payload)
    state.counts[payload["verdict"]] = state.counts.get(payload["verdict"], 0) + 1
    if slow and payload["verdict"] == "FAIL" and not state.quarantined:
        state.quarantined = entity
        writer.add("gate", entity=entity, stages=["two_card", "cross_node", "soak", "fault_injection"],
                   by=payload["check"], verdict="FAIL",
                   text=f"{entity} leaves load, pairs and faults; the rest of the rack goes on")  # fmt: skip
