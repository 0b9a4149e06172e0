"""The shipped GEMM and memory test, by a real PyTorch on the CPU."""

import os
import subprocess
from pathlib import Path

import pytest

from rackgate.probes.parsers import PARSERS
from rackgate.probes.probe import ProbedNode
from rackgate.probes.tools import compute_script, tools

pytestmark = pytest.mark.real_engine
ROOT = Path(__file__).parents[2]


@pytest.fixture
def python():
    chosen = os.environ.get("RACKGATE_VLLM_VENV")
    found = (Path(chosen) if chosen else ROOT / ".venv-vllm") / "bin" / "python"
    if not found.exists():
        pytest.fail(f"no PyTorch at {found}: run examples/install_vllm.sh, or set RACKGATE_VLLM_VENV")
    return found


def run(python, *words):
    command = [python, "-c", compute_script(), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_it_measures_both_values_in_the_units_of_its_tool(python):
    values = PARSERS["site"](run(python, "cpu").stdout, ProbedNode(name="node1"))
    units = tools()["compute"].units
    assert {("gemm_bf16", "gpu0"), ("hbm", "gpu0")} == {(one.name, one.entity) for one in values}
    assert all(one.value > 0 and one.unit == units[one.name] for one in values)


def test_without_an_accelerator_it_says_so_and_prints_no_value(python):
    done = run(python)
    assert (1, "") == (done.returncode, done.stdout)
    assert "PyTorch sees no accelerator" in done.stderr
