"""`make bench-load`, a tenth of it: what it writes, and that its ratios are those of its own figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_the_benchmark_writes_its_medians_and_ratios(tmp_path):
    out = tmp_path / "load.json"
    command = [
        sys.executable,
        "load.py",
        "--rounds",
        "1",
        "--only",
        "ours,floor",
        "--short",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    written = json.loads(out.read_text())
    keys = {"chunks_per_cpu_s", "requests_per_cpu_s", "ttft_error_p50", "ttft_error_p99"}
    assert {"ours": keys, "floor": keys} == {name: set(found) for name, found in written["clients"].items()}
    ours, floor = (written["clients"][name] for name in ("ours", "floor"))
    for found in (ours, floor):
        assert min(found["chunks_per_cpu_s"], found["requests_per_cpu_s"]) > 100
        assert 0 < found["ttft_error_p50"] <= found["ttft_error_p99"]
    ratio = written["ratios"]["chunks: floor / ours"]["ratio"]
    assert ratio == pytest.approx(floor["chunks_per_cpu_s"] / ours["chunks_per_cpu_s"])
    assert {"chunks: floor / ours"} == set(written["ratios"])
    assert (1, {}) == (written["rounds"], written["exactness"])
    for name in ("ours", "floor"):
        assert f"\n{name} " in done.stdout
