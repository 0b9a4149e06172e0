"""Run folders as a real run leaves them, made from a seed: 2 nodes x 2 cards, eight stages."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
from synthetic_payload import run_payload
from synthetic_rows import THROUGHPUT, TTFT, slo_rows, verdict_payload
from synthetic_scenario import START_NS, Scenario
from synthetic_series import write_samples, write_telemetry

from rackgate.evidence.record import Record, RecordLog
from rackgate.nouns.slo import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Scenario", "Writer", "make_run", "records_of"]

STARTED = datetime(2026, 3, 9, 8, 0, tzinfo=UTC)


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


@contextmanager
def records_of(folder: Path) -> Iterator[Writer]:
    """Begin a run folder and yield the writer of its records."""
    (folder / "evidence").mkdir(parents=True)
    log = RecordLog(folder / "evidence" / "records.jsonl")
    try:
        yield Writer(log)
    finally:
        log.close()


def make_run(folder: Path, scenario: Scenario | None = None) -> Path:
    """Write a whole run folder and return it."""
    scenario = scenario or Scenario()
    rng = np.random.default_rng(7)
    (folder / "evidence" / "samples").mkdir(parents=True)
    log = RecordLog(folder / "evidence" / "records.jsonl")
    writer = Writer(log)
    run = run_payload(scenario)
    writer.add("run", **run)
    rows = slo_rows(scenario)
    writer.add(
        "plan",
        checks=[
            {
                "id": f"{row['slo']} @ {entity}",
                "entity": entity,
                **{k: row[k] for k in row if k not in ("entities", "good", "spread")},
            }
            for row in rows
            for entity in row["entities"]
        ],
    )
    state = _State(quarantined="", counts={}, fault=None, windows={})
    for stage in STAGES:
        _stage(writer, folder, rng, scenario, rows, stage, state)
        if stage == scenario.interrupted_in:
            break
    write_telemetry(folder, rng, state.windows, writer.now_s, scenario, state.fault)
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
        endurance="soak: 8 card-hours prove little" if accepted else "",
        counts=state.counts,
        exit_status=int(not accepted),
        partial=scenario.partial,
        partial_why=["-k ttft"] if scenario.partial else [],
        duration_s=writer.now_s,
        records=writer.seq,
        digest=writer.log.digest(),
    )


def _stage(
    writer: Writer,
    folder: Path,
    rng: np.random.Generator,
    scenario: Scenario,
    rows: list[dict],
    stage: str,
    state: _State,
) -> None:
    begin = writer.now_s
    length = scenario.scale_s[stage] * scenario.stretch
    writer.add("stage", stage=stage, phase="begin", duration_s=None, text="")
    interrupted = stage == scenario.interrupted_in
    if stage == "preflight":
        for entity in scenario.entities:
            writer.add(
                "engine",
                engine=f"engine-{entity}",
                entity=entity,
                state="ready",
                launcher="simulated",
                url="http://127.0.0.1:18000",
                model="llama",
                cold_start_s=1.9,
                layer="",
                message="",
                hint="",
            )
    loads = {row["load"] for row in rows if row["stage"] == stage and row["load"]}
    engines = [entity for entity in scenario.entities if entity != state.quarantined]
    fault: tuple[float, float, str] | None = None
    if stage == "fault_injection" and not interrupted:
        hit = engines[-1]
        fault = (START_NS + (begin + 0.3 * length) * 1e9, START_NS + (begin + 0.62 * length) * 1e9, hit)
        state.fault = fault
        for moment, share in (
            ("intend", 0.29),
            ("inject", 0.3),
            ("prove", 0.32),
            ("heal", 0.6),
            ("prove_healed", 0.62),
        ):
            writer.now_s = begin + share * length
            writer.add(
                "fault",
                fault="kill",
                entity=hit,
                moment=moment,
                ok=True,
                detail="SIGKILL to the main process" if moment == "inject" else "",
            )
    for load in sorted(loads):
        start_ns = START_NS + int((begin + 0.1 * length) * 1e9)
        path = folder / "evidence" / "samples" / f"{stage}-{load}.parquet"
        outcomes = write_samples(
            path,
            rng,
            start_ns,
            0.85 * length,
            engines,
            scenario,
            scenario.requests * (3 if stage == "soak" else 1),
            fault,
        )
        writer.now_s = begin + 0.95 * length
        started = sum(outcomes.values())
        writer.add(
            "load",
            stage=stage,
            load=load,
            label=f"{stage}/{load}",
            engines=engines,
            start_ns=start_ns,
            end_ns=writer.now_ns,
            steady_start_ns=start_ns + int(0.05e9 * length),
            steady_end_ns=writer.now_ns,
            looks=[scenario.requests],
            stopped_because="all looks done",
            counters={"scheduled": started, "started": started, "dropped": 0, "outcomes": outcomes},
            reconciles=True,
            peak_in_flight=4,
            samples=f"samples/{path.name}",
            origin="sent" if load == "single" else "scheduled",
            reason=None,
            detail="",
        )
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
        writer.add(
            "measurement",
            stage=stage,
            load=load,
            metric=metric,
            statistic=statistic,
            entity="rack",
            value=value,
            unit=unit,
            count=n,
            bounds=None,
            reason=None,
            detail="",
            source="samples",
            definition=TTFT if metric == "ttft_ms" else THROUGHPUT if "token" in metric else metric,
            headline=True,
        )


def _judge(
    writer: Writer, rng: np.random.Generator, scenario: Scenario, row: dict, entity: str, state: _State
) -> None:
    value: float | None = row["good"] * (1 + row["spread"] * float(rng.normal()))
    more: dict[str, Any] = {}
    slow = scenario.slow and entity == scenario.slow
    if state.quarantined and state.quarantined in entity.split("+") and row["stage"] != "single_card":
        payload = verdict_payload(
            row,
            entity,
            None,
            reason="gated",
            skipped="gated",
            gated_by=f"single_card.ttft_p50 @ {scenario.slow}",
            detail=f"{state.quarantined} is quarantined",
        )
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
    payload = verdict_payload(row, entity, value, **more)
    writer.add("verdict", **payload)
    state.counts[payload["verdict"]] = state.counts.get(payload["verdict"], 0) + 1
    if slow and payload["verdict"] == "FAIL" and not state.quarantined:
        state.quarantined = entity
        writer.add(
            "gate",
            entity=entity,
            stages=["two_card", "cross_node", "soak", "fault_injection"],
            by=payload["check"],
            verdict="FAIL",
            text=f"{entity} leaves load, pairs and faults; the rest of the rack goes on",
        )
