"""The load generator beside its peers: the same reference server, the same run, client CPU counted.

usage: load.py [--rounds 5] [--only NAME,NAME] [--aiperf] [--short] [--out FILE]

Streams are paced at 20 ms per token, as an engine does. Peers that are not installed are left out and
named: `RACKGATE_VLLM_VENV` and `RACKGATE_AIPERF_VENV` are environments that hold vLLM and AIPerf; with
`--aiperf` AIPerf is installed into .cache/aiperf if it is nowhere. Writes benchmarks/out/load.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from load_exact import GOAL_ERROR_MS, GOAL_STARTUP_S, exactness, startup_s

from rackgate.loadgen.instrument.reference import reference_server
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load

HERE = Path(__file__).parent
CLIENTS = HERE / "load_clients.py"
PACED = {"concurrency": 100, "requests": 300, "tokens": 50}
UNEVEN = Script(ttft_ms=tuple(30.0 + 0.37 * (37 * index % 101) for index in range(101)))
"""First tokens at many moments: else streams that were started together stay together, and how many reads
one wake-up of the event loop takes depends on how fast a client starts, not on what a read costs."""

SMALL = {"concurrency": 32, "requests": 3000, "tokens": 1}
FIRST = ("sh", "-c", 'echo -10 2>&- >/proc/self/autogroup; exec nice -n -10 "$@"', "sh")
"""Runs a client before what else the machine does, as our worker runs where it may: a client that has to wait
for its turn reads more at once, which costs less and says nothing about the client."""

GOALS = (
    ("chunks: floor / ours", lambda of: of("floor", "chunks") / of("ours", "chunks"), "<=", 1.5),
    ("chunks: ours / vllm", lambda of: of("ours", "chunks") / of("vllm", "chunks"), ">=", 1.5),
    ("chunks: ours / aiperf", lambda of: of("ours", "chunks") / of("aiperf", "chunks"), ">=", 3.0),
    ("requests: ours / vllm", lambda of: of("ours", "requests") / of("vllm", "requests"), ">=", 5.0),
    ("requests: ours / aiperf", lambda of: of("ours", "requests") / of("aiperf", "requests"), ">=", 20.0),
)


def ours(url: str, *, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """Offer the same with our own worker; its CPU is counted from the end of warm-up, as the others' is."""
    load = Load(
        name="bench", prompt_tokens=16, output_tokens=tokens, concurrency=concurrency, looks=(requests,),
        warmup_requests=concurrency,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        endpoint = Endpoint(entity="reference", url=url, model="reference")
        with start_load(load, [endpoint], label="bench", samples_path=Path(folder) / "x", seed=1) as running:
            offered = running.finish()
        table = offered.samples.measured  # it is read from its file when it is asked for
        if dict(offered.counters.outcomes) != {"ok": requests}:
            raise RuntimeError(f"ours: {dict(offered.counters.outcomes)} {offered.detail}")
        rows = zip(table.request_id.tolist(), table.sent_ns, table.first_token_ns, strict=True)
        times = {name: (int(sent), int(first)) for name, sent, first in rows}
    wall_s = (offered.end_ns - offered.start_ns) / 1e9
    return {"cpu_s": offered.cpu_s, "wall_s": wall_s, "times": times}


def peer(python: str, name: str, url: str, *, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    command = [*FIRST, python, str(CLIENTS), name, url, str(concurrency), str(requests), str(tokens)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, start_new_session=True
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def aiperf_once(program: str, url: str, *, concurrency: int, requests: int, tokens: int) -> tuple[float, Any]:
    """Return the CPU seconds of one whole run of AIPerf with all its processes, and its exported records."""
    tokenizer = os.environ.get("RACKGATE_TOKENIZER", ".cache/tiny-llama")  # its own one needs the network
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [
                *FIRST, program, "profile", "--model", "reference", "--url", url, "--endpoint-type", "chat",
                "--streaming", "--tokenizer", str(Path(tokenizer).resolve()), "--ui", "none",
                "--no-server-metrics",
                "--no-gpu-telemetry", "--output-artifact-dir", folder, "--isl", "16", "--osl", str(tokens),
                "--concurrency", str(concurrency), "--request-count", str(requests),
                "--use-server-token-count", "--export-level", "records", "--random-seed", "1",
            ],
            capture_output=True, timeout=300, check=True, start_new_session=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        records = next(Path(folder).rglob("profile_export.jsonl"), None)
        lines = records.read_text().splitlines() if records is not None else []
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, [json.loads(line) for line in lines]


def aiperf(program: str, url: str, *, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """Return AIPerf's marginal CPU: a long run less a short one, so that its start-up does not count."""
    shape = {"concurrency": concurrency, "tokens": tokens}
    short, _ = aiperf_once(program, url, requests=concurrency, **shape)
    long, records = aiperf_once(program, url, requests=requests + concurrency, **shape)
    ahead_ns = time.time_ns() - time.perf_counter_ns()  # it stamps the start by wall time
    times = {}
    for record in records:
        about, found = record.get("metadata", {}), record.get("metrics", {}).get("time_to_first_token")
        if about.get("x_request_id") and found:
            sent = about["request_start_ns"] - ahead_ns
            times[about["x_request_id"]] = (sent, sent + round(found["value"] * 1e6))
    return {"cpu_s": max(long - short, 1e-9), "wall_s": 0.0, "times": times}


def errors_ms(times: dict[str, Any], stamps: dict[str, int]) -> list[float]:
    """Return reported TTFT - true TTFT of each request whose write was stamped."""
    return [(first - stamps[name]) / 1e6 for name, (_, first) in times.items() if name in stamps]


def has(python: str, module: str) -> bool:
    """Return whether an interpreter is there and can import a module."""
    if not Path(python).exists():
        return False
    command = [python, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def peers_of(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a function for each client that is installed, and why the others are left out."""
    found: dict[str, Any] = {"ours": ours}
    missing: dict[str, str] = {}
    folder = Path(os.environ.get("RACKGATE_AIPERF_VENV", ".cache/aiperf"))
    for name, module in (
        ("floor", "json"), ("epoll", "json"), ("aiohttp", "aiohttp"), ("httpx", "httpx"),
        ("httpx-aiohttp", "httpx_aiohttp"),
    ):  # fmt: skip
        pythons = [sys.executable, str(folder / "bin" / "python")]
        python = next((one for one in pythons if has(one, module)), None)
        if python is None:
            missing[name] = f"{module} is not installed"
        else:
            found[name] = lambda url, name=name, python=python, **shape: peer(python, name, url, **shape)
    python = Path(os.environ.get("RACKGATE_VLLM_VENV", ".venv-vllm")) / "bin" / "python"
    if python.exists():
        found["vllm"] = lambda url, **shape: peer(str(python), "vllm", url, **shape)
    else:
        missing["vllm"] = "no RACKGATE_VLLM_VENV"
    if options.aiperf and not (folder / "bin" / "aiperf").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", "aiperf"], check=False)
    program = folder / "bin" / "aiperf"
    if program.exists():
        found["aiperf"] = lambda url, **shape: aiperf(str(program), url, **shape)
    else:
        missing["aiperf"] = "not installed; --aiperf installs it"
    if options.only:
        found = {name: client for name, client in found.items() if name in options.only.split(",")}
    return found, missing


def one_round(
    clients: dict[str, Any],
    results: dict[str, dict[str, list[float]]],
    missing: dict[str, str],
    *,
    share: float = 1.0,
) -> None:
    for name, client in list(clients.items()):
        try:
            for kind, shape, script in (
                ("chunks", PACED, UNEVEN),
                ("requests", SMALL, Script(ttft_ms=(0.0,))),
            ):
                requests = max(shape["concurrency"], round(share * shape["requests"]))
                with reference_server(script) as url:
                    measured = client(url, **{**shape, "requests": requests})
                    with urllib.request.urlopen(f"{url}/stamps", timeout=10) as answer:  # noqa: S310 - our own server
                        stamps = json.load(answer)
                amount = requests * (shape["tokens"] if kind == "chunks" else 1)
                results.setdefault(name, {}).setdefault(kind, []).append(amount / measured["cpu_s"])
                if kind == "chunks":
                    errors = errors_ms(measured["times"], stamps)
                    if errors:
                        low, high = np.percentile(errors, (50, 99), method="inverted_cdf")
                        results[name].setdefault("error_p50", []).append(float(low))
                        results[name].setdefault("error_p99", []).append(float(high))
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            missing[name] = f"failed: {error}"
            clients.pop(name)
            results.pop(name, None)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--aiperf", action="store_true")
    parser.add_argument("--short", action="store_true", help="a tenth of the requests, no exactness")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "load.json")
    options = parser.parse_args()
    clients, missing = peers_of(options)
    results: dict[str, dict[str, list[float]]] = {}
    load_before = os.getloadavg()[0]
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}: {', '.join(clients)}", file=sys.stderr, flush=True)
        one_round(clients, results, missing, share=0.1 if options.short else 1.0)
    medians = {
        name: {kind: statistics.median(values) for kind, values in kinds.items()}
        for name, kinds in results.items()
    }
    print(
        f"{'client':<16}{'chunks / CPU s':>16}{'requests / CPU s':>18}{'TTFT error P50':>16}{'P99 (ms)':>10}"
    )
    for name, kinds in medians.items():
        shown = (
            (f"{kinds['error_p50']:.2f}", f"{kinds['error_p99']:.2f}") if "error_p50" in kinds else ("-", "-")
        )
        print(f"{name:<16}{kinds['chunks']:>16.0f}{kinds['requests']:>18.0f}{shown[0]:>16}{shown[1]:>10}")
    ratios = ratios_of(results)
    for text, ratio, op, goal in ratios:
        met = ratio <= goal if op == "<=" else ratio >= goal
        print(f"{text:<26}{ratio:6.2f}  goal {op} {goal:g}  {'met' if met else 'NOT MET'}")
    exact = {}
    if "ours" in results and not options.short:
        exact = tell_exactness(options.rounds)
    for name, why in missing.items():
        print(f"left out: {name}: {why}")
    print(
        f"load average before: {load_before:.2f}, cores: {os.cpu_count()}, median of {options.rounds} rounds"
    )
    write(options.out, medians, ratios, missing, options.rounds, load_before, exact)
    return 0


def tell_exactness(rounds: int) -> dict[str, Any]:
    """Measure and print how exact many streams are timed, and how soon a load begins."""
    print("round by round: the error with many streams", file=sys.stderr, flush=True)
    exact = exactness(rounds)
    for streams, found in exact.items():
        goal = GOAL_ERROR_MS[streams]
        print(
            f"{streams} streams, {found['chunks_per_s']:.0f} chunks/s ({found['gap_ms']:.0f} ms a token):"
            f" TTFT error P50 {found['p50']:.2f} ms, P99 {found['p99']:.2f} ms"
            f"  goal < {goal:g} ms  {'met' if found['p99'] < goal else 'NOT MET'}"
        )
    begun_s = startup_s(rounds)
    met = "met" if begun_s < GOAL_STARTUP_S else "NOT MET"
    print(f"start-up of a load: {begun_s:.2f} s  goal < {GOAL_STARTUP_S:g} s  {met}")
    return {"streams": exact, "startup_s": begun_s}


def ratios_of(results: dict[str, dict[str, list[float]]]) -> list[tuple[str, float, str, float]]:
    """Return each goal's ratio: the median over the paired rounds."""
    found = []
    for text, ratio, op, goal in GOALS:
        try:
            rounds = range(min(len(kinds["chunks"]) for kinds in results.values()))
            paired = [ratio(lambda name, kind, at=at: results[name][kind][at]) for at in rounds]
        except KeyError:
            continue
        found.append((text, statistics.median(paired), op, goal))
    return found


def write(
    path: Path,
    medians: Any,
    ratios: Any,
    missing: dict[str, str],
    rounds: int,
    load_average: float,
    exact: Any,
) -> None:
    path.parent.mkdir(exist_ok=True)
    names = {
        "chunks": "chunks_per_cpu_s", "requests": "requests_per_cpu_s",
        "error_p50": "ttft_error_p50", "error_p99": "ttft_error_p99",
    }  # fmt: skip
    written = {
        "rounds": rounds,
        "load_average": load_average,
        "cores": os.cpu_count(),
        "clients": {
            name: {names[kind]: value for kind, value in kinds.items()} for name, kinds in medians.items()
        },
        "ratios": {text: {"ratio": ratio, "goal": f"{op} {goal:g}"} for text, ratio, op, goal in ratios},
        "left_out": missing,
        "exactness": exact,
    }
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
