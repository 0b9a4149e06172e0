"""The benchmark of judging makes a file as loads leave it, and every one of its rows can be judged."""

import importlib.util
from pathlib import Path


def test_the_benchmark_judges_the_rack_and_each_engine_also_in_the_window_of_a_fault(tmp_path):
    path = Path(__file__).parents[2] / "benchmarks" / "judge_scale.py"
    spec = importlib.util.spec_from_file_location("judge_scale", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path / "x.parquet", 4000, 2)
    found = module.judge_all(tmp_path / "x.parquet", 2)
    # 18 rows of the whole load on the rack and both engines, 3 of the fault on the rack and the survivor.
    assert 18 * 3 + 3 * 2 == found["checks"]
    assert 450 < found["values"]["ttft_ms p99 @ rack"] < 550
