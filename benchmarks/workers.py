"""What it costs to offer one load by several worker processes: CPU per chunk, and how late the loops were.

usage: workers.py [--weak] [--workers 1,2] [--rounds 3] [--concurrency 200] [--requests 600] [--tokens 50]

Streams are paced at 20 ms per token. CPU of the workers alone counts, so that the ratio holds where the
server shares the cores; how much more N workers carry can only be seen with N + 1 idle cores. One load is
split over all workers; with `--weak` each worker has as much as one alone, which is what a split is for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from rackgate.loadgen.instrument.reference import reference_server
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load


def one(url: str, workers: int, options: argparse.Namespace) -> tuple[float, float, float, float]:
    """Offer the load once.

    Return chunks per CPU second and per second, the P99 of the latest loop in ms, and the busiest worker's
    share of the CPU.
    """
    times = workers if options.weak else 1
    requests = options.requests * times
    load = Load(
        name="workers", prompt_tokens=32, output_tokens=options.tokens,
        concurrency=options.concurrency * times, looks=(requests,), workers=workers,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        endpoint = Endpoint(entity="reference", url=url, model="reference")
        path = Path(folder) / "samples.parquet"
        with start_load(load, [endpoint], label="bench", samples_path=path, seed=1) as running:
            offered = running.finish()
    if offered.reason is not None or offered.counters.outcomes != {"ok": requests}:
        sys.exit(f"workers: {offered.reason} {offered.detail} {offered.counters}")
    busiest = max(cost.cpu_s for cost in offered.workers) / offered.cpu_s
    chunks, seconds = requests * options.tokens, (offered.end_ns - offered.start_ns) / 1e9
    return chunks / offered.cpu_s, chunks / seconds, offered.loop_lag_p99_ms or 0.0, busiest


def main() -> int:
    """Run paired rounds and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weak", action="store_true")
    parser.add_argument("--workers", default="1,2")
    for name, default in (("rounds", 3), ("concurrency", 200), ("requests", 600), ("tokens", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    found: dict[int, list[tuple[float, float, float, float]]] = {count: [] for count in counts}
    with reference_server(Script()) as url:
        for _ in range(options.rounds):
            for count in counts:
                found[count].append(one(url, count, options))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {options.rounds} paired rounds")
    print(f"{options.concurrency} streams {'a worker' if options.weak else 'in all'}")
    for count in counts:
        chunks, rate, lag, busiest = (median(column) for column in zip(*found[count], strict=True))
        pairs = list(zip(found[count], found[counts[0]], strict=True))
        cost, speed = (median(row[which] / first[which] for row, first in pairs) for which in (0, 1))
        print(
            f"{count} workers: {chunks:,.0f} chunks per CPU second ({cost:.2f} x), {rate:,.0f} chunks/s"
            f" ({speed:.2f} x), loop P99 {lag:.1f} ms, the busiest has {busiest:.0%} of the CPU"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
