"""How long it takes, and how much memory, to judge a load of ten million requests from its file.

usage: judge_scale.py [--samples 10000000] [--engines 8] [--keep FILE]

A file of samples as a load leaves it is made (not timed), read in a process of its own and judged there:
each percentile with its interval, rates and shares, over the rack and per engine, over the whole load and
in the window of a fault. Writes benchmarks/out/judge_scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rackgate.judging.judge import judge
from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.metric import Metric, measure
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.shipped import register_metrics
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.load import Load, Origin
from rackgate.nouns.node import Card, Node
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target

HERE = Path(__file__).parent
GOAL_S, GOAL_GIB = 10.0, 2.0
ROWS_AT_ONCE = 1 << 18
START_NS = 1_000_000_000_000
SPAN_S = 3600.0
LOAD = Load(
    name="soak", prompt_tokens=512, output_tokens=128, concurrency=256, duration_s=SPAN_S,
    ttft_bound_ms=1000.0, tpot_bound_ms=50.0, e2e_bound_ms=20_000.0,
)  # fmt: skip
PERCENTILES = tuple(
    (metric, statistic)
    for metric in ("ttft_ms", "tpot_ms", "e2e_ms")
    for statistic in ("p50", "p95", "p99", "max")
)
SHARES = (
    "error_rate",
    "goodput",
    "goodput_per_s",
    "request_throughput",
    "output_token_throughput",
    "offered_share",
)
OF_THE_FAULT = (("survivor_ttft_ms", "p99"), ("survivor_error_rate", "value"), ("fault_error_rate", "value"))


def engines_of(count: int) -> tuple[str, ...]:
    return tuple(f"node1/gpu{number}" for number in range(count))


def columns_of(random: np.random.Generator, part: range, engines: int, whole: int) -> dict[str, Any]:
    first, count = part.start, len(part)
    scheduled = START_NS + (SPAN_S * 1e9 * (first + np.arange(count)) / whole).astype(np.int64)
    failed = random.random(count) < 0.001
    tokens = 128.0
    first_token = scheduled + 1e6 * random.lognormal(5.0, 0.5, count)
    last = first_token + (tokens - 1) * 1e6 * random.normal(15.0, 1.0, count)
    nan = np.where(failed, np.nan, 1.0)
    names = {
        "load": LOAD.name,
        "label": "bench",
        "served_by": "",
        "token_source": "usage",
        "finish_reason": "length",
    }
    labels = {name: DictionaryColumn(np.zeros(count, np.int16), (text,)) for name, text in names.items()}
    labels["engine"] = DictionaryColumn(
        random.integers(0, engines, count).astype(np.int16), engines_of(engines)
    )
    labels["outcome"] = DictionaryColumn(failed.astype(np.int16), ("ok", "timeout"))
    counts = {"prompt_tokens": 512, "output_tokens": tokens, "http_status": 200}
    return {
        **labels,
        "scheduled_ns": scheduled,
        "look": np.zeros(count, np.int16),
        "warmup": first + np.arange(count) < 1000,
        "burst": np.zeros(count, np.bool_),
        "sent_ns": scheduled + 20_000.0,
        "connected_ns": scheduled + 20_000.0,
        "first_byte_ns": np.floor(first_token * nan),
        "first_token_ns": np.floor(first_token * nan),
        "first_answer_ns": np.floor(first_token * nan),
        "last_token_ns": np.floor(last * nan),
        "done_ns": np.floor(last),
        **{name: (value * nan).astype(np.float32) for name, value in counts.items()},
        "tpot_ms": (last - first_token) * nan / 1e6 / (tokens - 1),
        "tokens_per_chunk": nan.astype(np.float32),
        "chunks": np.where(failed, 0.0, tokens).astype(np.float32),
        "shared_chunks": np.zeros(count, np.float32),
        "retry_after_s": np.full(count, np.nan, np.float32),
    }


def make(path: Path, samples: int, engines: int) -> None:
    """Write the file. What no percentile is made of (texts, each token's arrival) is left short."""
    from rackgate.loadgen.results.sample_file import create_sample_file, write_row_group

    random = np.random.default_rng(1)
    with create_sample_file(path, Origin.SCHEDULED) as writer:
        for first in range(0, samples, ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, samples - first)
            texts: dict[str, Any] = {name: np.full(count, "") for name in ("text_digest", "detail")}
            texts["request_id"] = np.char.add("rg-0123abcd-0-r", np.arange(first, first + count).astype(str))
            for name in ("warnings", "token_ns"):
                texts[name] = np.empty(count, dtype=object)
                texts[name].fill(())
            columns = columns_of(random, range(first, first + count), engines, samples)
            table = SampleTable(columns, Origin.SCHEDULED, texts.__getitem__, lambda: iter(()))
            write_row_group(writer, table)


def observed(path: Path, engines: int) -> Observation:
    from rackgate.loadgen.results.sample_file import read_samples

    table = read_samples(path)
    names = engines_of(engines)
    measured = table.measured
    outcomes = measured.labels("outcome").counts()
    look = OfferedLoad(
        load=LOAD, label="bench", engines=names, samples=table, start_ns=START_NS,
        end_ns=START_NS + round(SPAN_S * 1e9), steady_start_ns=START_NS,
        steady_end_ns=START_NS + round(SPAN_S * 1e9),
        counters=Counters(scheduled=len(measured), started=len(measured), outcomes=outcomes),
    )  # fmt: skip
    cards = tuple(Card(name=name, node="node1", index=number) for number, name in enumerate(names))
    target = Target(
        name="bench", model="m", grade="simulated", nodes=(Node(name="node1", cards=cards),),
        engines=tuple(
            EngineSpec(
                name=name, launcher="remote", model="m", members=(Member(node="node1", cards=(name,)),)
            )
            for name in names
        ),
    )  # fmt: skip
    middle = START_NS + round(SPAN_S * 5e8)
    fault = FaultTimeline(
        kind="kill", entity=names[0], injected_ns=middle, proven_ns=middle, healed_ns=middle + 60_000_000_000,
        proven_healed_ns=middle + 60_000_000_000,
    )  # fmt: skip
    offer = LoadRun(load=LOAD.name, label="bench", looks=(look,))
    return Observation(stage="soak", target=target, load_runs=(offer,), faults=(fault,))


def row_of(metric: str, statistic: str, unit: str, scope: Scope, window: str) -> Slo:
    return Slo(
        id=f"{scope}.{metric}.{statistic}", stage="soak", metric=metric, statistic=statistic, op=Op.AT_MOST,
        bound=1e9, unit=unit, scope=scope, source="benchmark", load=LOAD.name, window=window,
    )  # fmt: skip


def judge_all(path: Path, engines: int) -> dict[str, Any]:
    """Read and judge; return what it took and what was found."""
    began = time.perf_counter()
    observation = observed(path, engines)
    read_s = time.perf_counter() - began
    metrics: dict[str, Metric] = {}

    def register(name: str, unit: str, function: Any, **more: Any) -> None:
        metrics[name] = Metric(name=name, unit=unit, function=function, **more)

    register_metrics(register)
    values: dict[str, Any] = {}
    asked = [(metric, statistic, "load") for metric, statistic in PERCENTILES]
    asked += [(metric, "value", "load") for metric in SHARES]
    asked += [(metric, statistic, "fault") for metric, statistic in OF_THE_FAULT]
    for metric, statistic, window in asked:
        survivors = engines_of(engines)[1 if window == "fault" else 0 :]  # the first one is broken
        for entity in ("rack", *survivors):
            scope = Scope.RACK if entity == "rack" else Scope.CARD
            slo = row_of(metric, statistic, metrics[metric].unit, scope, window)
            measurement = measure(metrics, slo, entity, observation)
            judge(Check(slo=slo, entity=entity), measurement)
            if measurement.value is None:
                raise RuntimeError(f"{slo.id} @ {entity}: {measurement.detail}")
            values[f"{metric} {statistic} @ {entity}"] = measurement.value
    return {
        "read_s": read_s,
        "whole_s": time.perf_counter() - began,
        "cpu_s": time.process_time(),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "checks": len(values),
        "values": {name: value for name, value in values.items() if name.endswith("@ rack")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="where to keep the file of samples, or have it")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        print(json.dumps(judge_all(options.judge, options.engines)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "samples.parquet"
        if not path.exists():
            make(path, options.samples, options.engines)
        command = [sys.executable, __file__, "--judge", str(path), "--engines", str(options.engines)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
    for name, value in found["values"].items():
        print(f"{name:<40}{value:>14.3f}")
    found |= {"samples": options.samples, "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    for name, goal, unit in (("whole_s", GOAL_S, "s"), ("peak_gib", GOAL_GIB, "GiB")):
        met = "met" if found[name] <= goal else "NOT MET"
        print(f"{name:<12}{found[name]:>8.2f} {unit}  goal <= {goal:g} {unit}  {met}")
    print(
        f"{options.samples} samples, {found['checks']} checks, of that {found['read_s']:.1f} s reading,"
        f" {found['cpu_s']:.1f} s CPU in all; load average {found['load_average']:.1f}"
    )
    (HERE / "out").mkdir(exist_ok=True)
    (HERE / "out" / "judge_scale.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
