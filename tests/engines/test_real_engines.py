"""Launchers on real engines: vLLM on the CPU in a container, Triton as a process."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.launchers.processes.launcher import process
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.target import EngineSpec

pytestmark = pytest.mark.real_engine
HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("RACKGATE_CACHE", ROOT / ".cache"))
TRITON_PYTHON = "/usr/bin/python3.11"


@pytest.fixture(scope="module")
def vllm_parts():
    """Return vLLM's environment and the tiny model, both made by examples/accept_real.sh."""
    venv = Path(os.environ.get("RACKGATE_VLLM_VENV", ROOT / ".venv-vllm"))
    packages = next(iter(sorted((venv / "lib").glob("python3.11/site-packages"))), None)
    if packages is None or not (packages / "vllm").exists():
        pytest.fail(
            f"no vLLM for Python 3.11 in {venv}: run examples/accept_real.sh, or set RACKGATE_VLLM_VENV",
            pytrace=False,
        )
    model = CACHE / "tiny-llama"
    if not (model / "model.safetensors").exists():
        maker = [str(venv / "bin" / "python"), str(ROOT / "examples" / "tiny_model.py"), str(model)]
        subprocess.run(maker, check=True, timeout=120, capture_output=True)
    return packages, model


@pytest.fixture
def boxed_vllm(vllm_parts, docker_image):
    """Return a target's engine: the base image with vLLM's packages mounted read-only."""
    packages, model = vllm_parts
    return EngineSpec(
        name="vllm",
        launcher="container",
        model="tiny",
        pool="cpu",
        settings={
            "engine": "vllm",
            "image": "rackgate-base:bookworm",
            "entrypoint": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "model_path": "/model",
            "context_tokens": 1024,
            "extra_args": ["--kv-cache-memory-bytes", "67108864", "--enforce-eager"],
            "ipc": "private",
            "volumes": {str(packages): "/opt/vllm", str(model): "/model"},
            "env": {
                "PYTHONPATH": "/opt/vllm",
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "VLLM_HOST_IP": "127.0.0.1",
            },
            "ready_timeout_s": 300,
            "stop_timeout_s": 20,
        },
    )


def test_real_vllm_in_a_container_comes_up_with_progress_and_generates(boxed_vllm, tmp_path):
    told = []
    with container(boxed_vllm, run_id="run-5", log_dir=str(tmp_path), on_progress=told.append) as engine:
        answer = httpx.post(
            f"{engine.url}/v1/completions",
            json={"model": "tiny", "prompt": "A request goes in", "max_tokens": 16, "ignore_eos": True},
            timeout=60,
        ).json()
    assert answer["usage"]["completion_tokens"] == 16
    assert any("loading weights" in line or "weights loaded" in line for line in told)
    assert "Application startup complete" in (tmp_path / "vllm.log").read_text()


def test_real_vllm_that_cannot_fit_is_told_with_its_sizes(boxed_vllm, tmp_path):
    words = ["--kv-cache-memory-bytes", "65536", "--enforce-eager"]
    small = replace(boxed_vllm, settings={**boxed_vllm.settings, "extra_args": words})
    with (
        pytest.raises(LaunchFailed) as failed,
        container(small, run_id="run-5", log_dir=str(tmp_path)),
    ):
        pytest.fail("it came up")
    assert failed.value.layer == "model"
    assert failed.value.explanation.name in ("kv_cache_too_small", "engine_out_of_memory")


@pytest.fixture(scope="module")
def triton_folder():
    """Return the environment that holds the real server, installed on demand."""
    chosen = os.environ.get("RACKGATE_TRITON_VENV")
    venv = Path(chosen) if chosen else CACHE / "triton"
    packages = venv / "lib" / "python3.11" / "site-packages"
    if not (packages / "pytriton").exists():
        if chosen:
            pytest.fail(f"RACKGATE_TRITON_VENV={chosen} has no nvidia-pytriton", pytrace=False)
        python = TRITON_PYTHON if Path(TRITON_PYTHON).exists() else sys.executable
        subprocess.run([python, "-m", "venv", str(venv)], check=True, timeout=120, capture_output=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "nvidia-pytriton==0.7.0"]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            shutil.rmtree(venv)
            pytest.fail(f"nvidia-pytriton cannot be installed: {done.stderr.strip()[-500:]}", pytrace=False)
    server = packages / "pytriton" / "tritonserver"
    backend = venv / "backends" / "python"
    backend.mkdir(parents=True, exist_ok=True)
    parts = [
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        server / "python_backend_stubs" / "3.11" / "triton_python_backend_stub",
    ]
    for part in parts:
        shutil.copy2(part, backend / part.name)
    for program in (backend / "triton_python_backend_stub", server / "bin" / "tritonserver"):
        program.chmod(0o755)
    return venv


@pytest.fixture
def triton(triton_folder):
    packages = triton_folder / "lib" / "python3.11" / "site-packages"
    paths = [packages / "pytriton" / "tritonserver" / "bin", triton_folder / "bin"]

    def make(repository, model="words", **settings):
        return EngineSpec(
            name="triton",
            launcher="process",
            model=model,
            protocol="triton",
            pool="cpu",
            settings={
                "engine": "triton",
                "model_path": str(repository),
                "extra_args": [f"--backend-directory={triton_folder / 'backends'}"],
                "env": {
                    "PATH": ":".join([*map(str, paths), "/usr/bin", "/bin"]),
                    "PYTHONPATH": str(packages),
                    "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
                },
                "ready_timeout_s": 120,
                "stop_timeout_s": 10,
                **settings,
            },
        )

    return make


@pytest.fixture
def repository(tmp_path):
    shutil.copytree(HERE / "triton_models", tmp_path / "models")
    return tmp_path / "models"


def test_real_triton_is_started_by_the_catalogues_command_and_answers_as_it_does(
    triton, repository, tmp_path, gone
):
    with process(triton(repository), run_id="run-5", log_dir=str(tmp_path)) as engine:
        words = f"{engine.url}/v2/models/words"
        body = {"text_input": "a b", "max_tokens": 3, "stream": True}
        stream = httpx.post(f"{words}/generate_stream", json=body, timeout=20)
        several = httpx.post(f"{words}/generate", json=body, timeout=20)
        infer = httpx.post(f"{words}/infer", json={"inputs": []}, timeout=20)
        listed = httpx.post(f"{engine.url}/v2/repository/index", timeout=20).json()
        unknown = probe_engine(engine.url, "none", {}, "triton", 10)
    assert (stream.status_code, stream.text.count("data: "), "[DONE]" in stream.text) == (200, 3, False)
    assert several.status_code == 200
    assert "expects model to produce exactly 1 response" in several.json()["error"]
    assert infer.status_code in (400, 501)
    assert [(one["name"], one["state"]) for one in listed] == [("words", "READY")]
    assert unknown.layer_failed == "model"
    assert gone(engine.handle.pid)


def test_real_triton_with_a_broken_configuration_is_explained_by_its_own_log(triton, repository, tmp_path):
    (repository / "words" / "config.pbtxt").write_text('name: "words"\nbackend: "python"\nmax_batch: 0\n')
    with (
        pytest.raises(LaunchFailed) as failed,
        process(triton(repository), run_id="run-5", log_dir=str(tmp_path)),
    ):
        pytest.fail("it came up")
    assert failed.value.explanation.name == "model_config_invalid"
    assert failed.value.layer == "model"


def test_real_triton_without_the_backend_is_explained_by_its_own_log(triton, repository, tmp_path):
    config = repository / "words" / "config.pbtxt"
    config.write_text(config.read_text().replace('"python"', '"vllm"'))
    with (
        pytest.raises(LaunchFailed) as failed,
        process(triton(repository), run_id="run-5", log_dir=str(tmp_path)),
    ):
        pytest.fail("it came up")
    assert failed.value.explanation.facts == {"backend": "vllm"}
    assert "the server has no backend vllm" in failed.value.hint
