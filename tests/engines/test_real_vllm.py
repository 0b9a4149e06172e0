"""The process launcher on a real engine: vLLM on the CPU, as examples/vllm-cpu.toml starts it."""

import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from rackgate.config.target_file import load_target
from rackgate.engines.launchers import settings_checkers
from rackgate.engines.launchers.processes.launcher import process

pytestmark = pytest.mark.real_engine
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def vllm_folder(tmp_path_factory):
    """Make the folder that the example runs in: an environment with vLLM and the tiny model."""
    chosen = os.environ.get("RACKGATE_VLLM_VENV")
    venv = Path(chosen) if chosen else ROOT / ".venv-vllm"
    if not (venv / "bin" / "python").exists():
        pytest.fail(
            f"no vLLM in {venv}: run examples/install_vllm.sh, or set RACKGATE_VLLM_VENV", pytrace=False
        )
    folder = tmp_path_factory.mktemp("vllm")
    cache = folder / ".cache"
    cache.mkdir()
    (cache / "vllm").symlink_to(venv.absolute())
    made = ROOT / ".cache" / "tiny-llama"
    if made.exists():
        shutil.copytree(made, cache / "tiny-llama")
    else:
        maker = [
            str(venv / "bin" / "python"),
            str(ROOT / "examples" / "tiny_model.py"),
            str(cache / "tiny-llama"),
        ]
        subprocess.run(maker, check=True, timeout=120, capture_output=True)
    return folder


def test_real_vllm_comes_up_generates_and_leaves_nothing(vllm_folder, tmp_path, monkeypatch, gone):
    checkers = settings_checkers()
    (spec,) = load_target(ROOT / "examples" / "vllm-cpu.toml", checkers).engines
    monkeypatch.chdir(vllm_folder)
    with process(spec, run_id="run-1", log_dir=str(tmp_path)) as engine:
        members = [pid for pid in _pids() if _session(pid) == engine.handle.pid]
        answer = httpx.post(
            f"{engine.url}/v1/completions",
            json={"model": "tiny", "prompt": "A request goes in", "max_tokens": 16, "ignore_eos": True},
            timeout=60,
        ).json()
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["text"].strip()
    assert len(members) >= 2
    assert [pid for pid in members if not gone(pid)] == []


def _pids():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _pids():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
