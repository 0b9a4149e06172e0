"""Samples and telemetry of a synthetic run, as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from synthetic_scenario import START_NS, Scenario

if TYPE_CHECKING:
    from pathlib import Path


def write_samples(
    path: Path,
    rng: np.random.Generator,
    start_ns: int,
    length_s: float,
    engines: list[str],
    scenario: Scenario,
    requests: int,
    fault: tuple[float, float, str] | None,
) -> dict[str, int]:
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
            "served_by": pa.array(engine.tolist(), mask=~ok),
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


def write_telemetry(
    folder: Path,
    rng: np.random.Generator,
    windows: dict[str, tuple[float, float]],
    end_s: float,
    scenario: Scenario,
    fault: tuple[float, float, str] | None,
) -> None:
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
        series = (
            ("power_w", power, "W"),
            ("temperature_c", celsius, "°C"),
            ("clock_event_reasons", bits, ""),
        )
        for name, values, unit in series:
            rows["t_ns"].append(START_NS + (at_s * 1e9).astype(np.int64))
            rows["value"].append(values.astype(float))
            for column, text in (
                ("node", entity.partition("/")[0]),
                ("entity", entity),
                ("field", name),
                ("unit", unit),
            ):
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
