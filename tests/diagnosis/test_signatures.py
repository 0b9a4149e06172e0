"""Each row of the table is found by a text as people see it, and by no ordinary log."""

import json
from pathlib import Path

import pytest

from rackgate.diagnosis.lookup import diagnose
from rackgate.known_failures.signatures import signatures
from rackgate.nouns.measurement import Layer, Symptom
from rackgate.telemetry.cards.clock_events import CLOCK_EVENTS
from rackgate.telemetry.kernel.xid import xid_class

CASES = Path(__file__).parents[1] / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}


def text(name):
    return (CASES / "inputs" / name).read_text()


XID = "NVRM: Xid (PCI:0000:1b:00): {}, pid=7, name=python3, {}"

SEEN = {
    "fallen_off_bus": [XID.format(79, "GPU has fallen off the bus."), "GPU is lost.  Reboot the system"],
    "memory_error": [
        XID.format(48, "DBE (double bit error) ECC Error"),
        XID.format(64, "row remap failure"),
        XID.format(95, "Uncontained: LTC TAG"),
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ],
    "contained_memory_error": [XID.format(63, "Row Remapper: New row marked"), XID.format(94, "Contained")],
    "nvlink_error": [
        XID.format(74, "NVLink: fatal error detected on link 3"),
        XID.format(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x022e25c6 0x0)"),
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 21 LTSSM Fault Up",
    ],
    "nvlink_nonfatal": [
        XID.format(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x040b60c2 0x8)"),
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 18 egress",
    ],
    "gsp_timeout": [XID.format(119, "Timeout after 45s of waiting for RPC response from GPU4 GSP!")],
    "card_wants_reset": [XID.format(154, "GPU recovery action changed to 0x1"), "[GPU requires reset]"],
    "program_exception": [XID.format(31, "MMU Fault"), XID.format(13, "Graphics SM Warp Exception")],
    "channel_stopped": [XID.format(43, "Ch 00000008"), XID.format(45, "Ch 00000008")],
    "hw_thermal_slowdown": ["bits seen: hw_slowdown, hw_thermal_slowdown"],
    "sw_thermal_slowdown": ["        SW Thermal Slowdown               : Active"],
    "hw_power_brake": ["HW Power Brake Slowdown : Active", "hw_power_brake"],
    "hw_slowdown": ["        HW Slowdown                       : Active"],
    "sw_power_cap": ["sw_power_cap"],
    "application_clocks": ["Applications Clocks Setting   : Active"],
    "pcie_errors": ["pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0"],
    "host_memory_error": ["EDAC MC0: 1 CE memory read error on CPU_SrcID#0"],
    "driver_library_mismatch": [text("GPU-04a.txt"), text("XID-09b.log")],
    "driver_not_running": [text("GPU-04b.txt")],
    "nouveau": [text("XID-14.log")],
    "module_refused": ["modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"],
    "driver_too_old": ["CUDA driver version is insufficient for CUDA runtime version"],
    "driver_unresponsive": ["driver unresponsive: no answer within 2 s"],
    "fabric_manager": [
        "RuntimeError: CUDA error: system not yet initialized",
        "nvidia-fabricmanager.service: Failed with result 'exit-code'",
    ],
    "node_rebooted": ["n1 rebooted at 2026-02-14 05:03:41 UTC: the last lines before it may be lost"],
    "nvml_failed": ["Failed to initialize NVML: Insufficient Permissions"],
    "container_lost_gpu": ["Failed to initialize NVML: Unknown Error"],
    "gpu_runtime_missing": json.loads(text("CON-01.json")),
    "cdi_unresolvable": json.loads(text("CON-02.json")),
    "gpu_missing_in_container": [
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ],
    "shared_memory": [
        text("CON-12.log"),
        "RuntimeError: DataLoader worker is killed: insufficient shared memory (shm)",
    ],
    "memlock": ["ibv_reg_mr_iova2 failed with error Cannot allocate memory"],
    "limit_refused": ["error setting rlimit type 8: operation not permitted: unknown"],
    "no_free_card": ["Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."],
    "no_node": ["Unschedulable: 0/1 nodes are available: 1 node(s) had taints that the pod didn't tolerate."],
    "image_not_on_node": ['ErrImageNeverPull: Container image "x:1" is not present'],
    "pod_security": ['pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'],
    "command_missing": ['exec: "vllm": executable file not found in $PATH: unknown'],
    "engine_out_of_memory": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "ValueError: Free memory on device (10/141 GiB) is less than desired GPU memory utilization (0.9)",
    ],
    "host_out_of_memory": ["Out of memory: Killed process 4242 (python3) total-vm:1kB", '"OOMKilled"'],
    "model_not_found": [
        '{"object":"error","message":"The model `llama` does not exist.","type":"NotFoundError","code":404}',
    ],
    "model_files_missing": [
        "OSError: nope is not a local folder and is not a valid model identifier listed on"
    ],
    "triton_repository": [
        "error: creating server: Internal - failed to stat file /models: model repository missing",
        "Poll failed for model directory 'llama': at least one version must be available",
    ],
    "unsupported_model": ["ValueError: Model architectures ['FooForCausalLM'] are not supported for now."],
    "registry_refused": [
        "Error response from daemon: pull access denied for nvcr.io/nim/meta/llama",
        "unauthorized: authentication required",
        "401 Client Error: Unauthorized for url: https://huggingface.co/api/models/meta-llama",
    ],
    "cuda_error": ["RuntimeError: CUDA error: an illegal memory access was encountered"],
    "no_cuda_device": ["RuntimeError: No CUDA GPUs are available"],
    "nccl_error": ["torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251"],
    "engine_died": ["vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."],
    "port_in_use": ["OSError: [Errno 98] Address already in use"],
    "wrong_key": ['HTTP 401 Unauthorized: {"error":"missing api key"}'],
    "rate_limited": ["HTTP/1.1 429 Too Many Requests"],
    "overloaded": ["503 Service Unavailable: no healthy upstream"],
    "connection_refused": ["connect: Connection refused"],
    "name_unknown": ["[Errno -2] Name or service not known"],
    "no_route": ["connect to host 10.0.0.7 port 8000: No route to host"],
    "certificate": ["[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"],
    "sync_boost": ["        Sync Boost                        : Active"],
    "display_clocks": ["        Display Clock Setting             : Active"],
    "network_adapter": ["mlx5_core 0000:17:00.0: health_care: device's health compromised - error"],
}

ORDINARY = """
INFO 11-30 10:54:01 [api_server.py:1090] Starting vLLM API server on http://0.0.0.0:8000
INFO 11-30 10:54:09 Loading weights took 12.31 seconds
INFO 11-30 10:54:30 Graph capturing finished in 20 secs, took 0.41 GiB
INFO:     127.0.0.1:41234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
[    5.000001] nvidia: loading out-of-tree module taints kernel.
[    5.100000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build
[    5.200000] nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver
GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)
        HW Slowdown                       : Not Active
        SW Power Cap                      : Not Active
"""


def names(found):
    return [one.signature.name for one in found]


CONDITIONS = {
    *("first_token_slow", "queueing", "not_warmed_up", "batching"),
    *("latency_unstable", "busy_and_slow", "idle_under_load"),
}


def by_key(*keys):
    return diagnose("", symptoms=[Symptom(key=key, seen=f"seen {key}") for key in keys])


def test_every_row_has_a_text_that_finds_it_or_is_a_condition():
    assert {known.name for known in signatures()} == set(SEEN) | CONDITIONS


@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_a_condition_finds_its_row(name):
    (found,) = by_key(f"condition:{name}")
    assert (found.signature.name, found.seen) == (name, f"seen condition:{name}")


@pytest.mark.parametrize(("bit", "name"), CLOCK_EVENTS.items())
def test_each_clock_bit_has_a_row_of_its_own(bit, name):
    (found,) = by_key(f"clock:{bit:#x}")
    assert found.signature.name == ("idle_under_load" if name == "gpu_idle" else name)
    assert f"{bit:#x})" in found.meaning


def test_of_a_mask_each_bit_is_told_and_the_reason_comes_before_the_slowdown():
    assert names(by_key("clock:0x48")) == ["hw_thermal_slowdown", "hw_slowdown"]
    assert names(by_key("clock:0x60"))[0] == "hw_thermal_slowdown"


@pytest.mark.parametrize("code", [code for code in range(1000) if xid_class(code).counts_as is not None])
def test_each_xid_has_a_meaning_a_layer_and_a_next_step_by_its_code(code):
    (found,) = by_key(f"xid:{code}")
    assert found.meaning
    assert found.signature.layer is Layer.HARDWARE
    assert found.next_steps[0]


def test_an_xid_that_no_row_has_is_told_from_the_table_of_xids():
    (found,) = by_key("xid:54")
    assert found.meaning == "XID 54: auxiliary power is not connected to the card"
    assert names(by_key("xid:999")) == ["xid_999"]


def test_an_error_of_a_link_that_was_survived_is_another_row_than_a_fatal_one():
    assert names(by_key("xid:149")) == ["nvlink_error"]
    assert names(by_key("xid:149:nonfatal")) == ["nvlink_nonfatal"]
    assert names(by_key("sxid:nonfatal")) == ["nvlink_nonfatal"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("aer", "pcie_errors"),
        ("edac", "host_memory_error"),
        ("oom", "host_out_of_memory"),
        ("mlx5", "network_adapter"),
        ("api_mismatch", "driver_library_mismatch"),
        ("driver_not_bound", "nouveau"),
        ("nvrm", "kernel_nvrm"),
        ("lookalike", "kernel_lookalike"),
        ("probe_failed", "driver_not_running"),
        ("no_adapter", "driver_not_running"),
        ("nouveau", "nouveau"),
        ("reboot", "node_rebooted"),
    ],
)
def test_each_kind_of_kernel_event_has_a_row(kind, name):
    assert names(by_key(f"kernel:{kind}")) == [name]


def test_a_key_that_nobody_knows_gives_nothing():
    assert by_key("condition:nobody", "weather:rain") == ()


def test_what_is_seen_by_code_and_by_words_is_told_once():
    found = diagnose(XID.format(79, "x"), symptoms=[Symptom(key="xid:79", seen="XID 79 on n1/gpu0")])
    assert [(one.signature.name, one.seen) for one in found] == [("fallen_off_bus", "XID 79 on n1/gpu0")]


@pytest.mark.parametrize(("name", "seen"), [(name, one) for name, texts in SEEN.items() for one in texts])
def test_a_text_finds_its_row_first(name, seen):
    found = diagnose(f"INFO starting\n{seen}\n")
    assert names(found)[0] == name


def test_an_ordinary_log_shows_nothing():
    assert diagnose(ORDINARY) == ()


@pytest.mark.parametrize("known", signatures(), ids=lambda known: known.name)
def test_each_row_says_what_it_means_and_what_to_do(known):
    assert known.meaning
    assert known.source
    assert all(step.strip() and step[-1] in ".?)`" for step in known.next_steps)
    assert set(known.explains) <= {other.name for other in signatures()}


def test_the_cause_comes_before_its_consequences():
    log = f"{text('CON-12.log')}\nEngineDeadError: EngineCore encountered an issue\n"
    assert names(diagnose(log)) == ["shared_memory", "nccl_error", "engine_died"]
    assert diagnose(log)[0].signature.layer == Layer.CONTAINER


def test_an_xid_explains_the_cuda_error_of_the_same_log():
    log = (
        XID.format(79, "GPU has fallen off the bus.")
        + "\nRuntimeError: CUDA error: unspecified launch failure\n"
    )
    assert names(diagnose(log)) == ["fallen_off_bus", "cuda_error"]


def test_one_line_has_layer_what_was_seen_and_the_first_step():
    (found,) = diagnose("connect: Connection refused")
    assert found.text == (
        "network: the host answers, and nothing listens on that port (seen: Connection refused)."
        " Next: Is the process up, on this port and on an address"
        " that can be reached (0.0.0.0, not 127.0.0.1)?"
    )


def test_con_01_the_driver_that_was_asked_for_is_named():
    found = [diagnose(one)[0] for one in json.loads(text("CON-01.json"))]
    assert {one.signature.name for one in found} == {EXPECTED["CON-01"]["class"]}
    assert [one.details["driver"] for one in found] == EXPECTED["CON-01"]["driver"]


def test_con_02_the_devices_that_are_unknown_are_named():
    found = [diagnose(one)[0] for one in json.loads(text("CON-02.json"))]
    assert {one.signature.name for one in found} == {EXPECTED["CON-02"]["class"]}
    assert [one.details["devices"].split(", ") for one in found] == EXPECTED["CON-02"]["devices"]


def test_con_12_small_shared_memory_is_no_hardware_fault():
    found = diagnose(text("CON-12.log"))[0]
    assert (found.signature.name, found.signature.layer) == ("shared_memory", Layer.CONTAINER)
