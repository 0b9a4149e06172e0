import json
from pathlib import Path

import pytest

from rackgate.engines.launchers.outcome import ended, log_end, log_tail
from rackgate.engines.launchers.signatures import explain
from rackgate.known_failures.signatures import signatures
from rackgate.nouns.target import EngineSpec

INPUTS = Path(__file__).parents[1] / "cases" / "inputs"


@pytest.mark.parametrize("text", json.loads((INPUTS / "CON-01.json").read_text()))
def test_a_daemon_without_a_gpu_driver_is_told_from_an_engine_fault(text):
    assert (explain(text).name, explain(text).layer) == ("gpu_runtime_missing", "service")


@pytest.mark.parametrize("text", json.loads((INPUTS / "CON-02.json").read_text()))
def test_an_unknown_cdi_device_is_told_with_the_folders_to_look_at(text):
    assert explain(text).name == "cdi_unresolvable"
    assert "/etc/cdi" in explain(text).hint


def test_small_shared_memory_is_no_hardware_fault():
    assert explain((INPUTS / "CON-12.log").read_text()).name == "shared_memory"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "engine_out_of_memory"),
        (
            "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
            "unsupported_model",
        ),
        ("OSError: nope is not a local folder and is not a valid model identifier", "model_files_missing"),
        ("huggingface_hub: 401 Client Error: Unauthorized for url", "registry_refused"),
        ("CUDA driver version is insufficient for CUDA runtime version", "driver_too_old"),
        ("python: No module named vllm", "command_missing"),
        ("error setting rlimit type 8: operation not permitted: unknown", "limit_refused"),
    ],
)
def test_known_lines_are_explained(line, name):
    assert name == explain(f"INFO starting\n{line}\n").name


def test_an_ordinary_log_is_not_explained():
    assert explain("INFO loading weights 10%\nINFO capturing graphs\n") is None


def test_whose_a_failed_start_is_and_where_is_one_of_a_few_words():
    rows = [known for known in signatures() if known.cause]
    assert {known.cause for known in rows} == {"environment", "configuration", "credentials", "model"}
    found = [explain(text) for text in ("Errno 98", "CUDA out of memory", "exec format error")]
    assert [one.layer for one in found] == ["service", "model", "service"]


def test_a_finding_that_ends_no_start_explains_none():
    assert explain("HTTP/1.1 429 Too Many Requests") is None


def test_a_log_with_cut_characters_is_read():
    raw = bytes.fromhex((INPUTS / "CON-06.log.hex").read_text().replace("\n", " "))
    text = raw.decode("utf-8", "replace")
    assert text.count("\ufffd") == 2
    assert log_tail(raw).count("\ufffd") == 2


def test_the_tail_of_a_log_holds_no_secret(monkeypatch):
    monkeypatch.setenv("HUB_PASS", "correct-horse-battery")
    tail = log_tail(b"using correct-horse-battery\n", ["correct-horse-battery"])
    assert tail == "using [redacted]"


def test_a_warning_about_pinned_memory_on_a_machine_without_a_card_explains_nothing():
    warning = "pool will not be available: CUDA driver version is insufficient for CUDA runtime version"
    assert explain(warning) is None


def test_the_cause_is_found_above_the_lines_that_are_shown():
    log = log_end(
        b"torch.OutOfMemoryError: CUDA out of memory\n" + b"  at frame\n" * 200 + b"see root cause above\n"
    )
    assert "OutOfMemory" not in log.shown
    failure = ended(EngineSpec(name="e", launcher="process", model="m"), "process", "exit code 1", 2.0, log)
    assert str(failure).endswith("; it said: torch.OutOfMemoryError: CUDA out of memory")
    assert failure.layer == "model"
