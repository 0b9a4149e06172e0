"""Reads of the storage that models come from, and cards inside a container."""

import json

import pytest

from rackgate.hosts.runner import LocalRunner, Ran
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.preflight.container import probe_container
from rackgate.preflight.storage import probe_storage

FILE = "/models/a.safetensors"
MIB = 1 << 20


class Scripted:
    """Answers each command by its first word that is known; keeps what it was asked."""

    name = "n1"

    def __init__(self, **answers):
        self.asked = []
        self._answers = {"sh": Ran(text=f"{200 * MIB} {FILE}\n", status=0), **answers}

    def run(self, command, _):
        self.asked.append(command.argv)
        words = [word for word in command.argv if word in ("sh", "fio", "dd", "docker")]
        answer = self._answers.get(
            words[0], Ran(reason=Reason.TOOL_MISSING, detail=f"{words[0]} is not there")
        )
        return answer(command.argv) if callable(answer) else answer


def measured(runner):
    found = probe_storage("n1", runner, "/models")
    return found["storage_read_mib_s", "n1"], found["storage_latency_ms", "n1"]


def copied(moved, seconds):
    return Ran(error=f"{moved} bytes (x, y) copied, {seconds} s, 1 GB/s\n", status=0)


def fio(argv):
    small = "--rw=randread" in argv
    read = {"bw_bytes": 500 * MIB, "clat_ns": {"mean": 250_000.0 if small else 8e6}, "total_ios": 10}
    return Ran(text=json.dumps({"jobs": [{"read": read}]}), status=0)


def test_fio_is_used_where_it_is_installed_and_reads_directly_without_writing():
    runner = Scripted(fio=fio)
    read, latency = measured(runner)
    assert (read.value, latency.value) == (500.0, 0.25)
    lines = [argv for argv in runner.asked if argv[0] == "fio"]
    assert all({"--readonly", "--direct=1", f"--filename={FILE}"} <= set(argv) for argv in lines)


def test_fio_that_read_nothing_is_no_figure():
    empty = {"jobs": [{"read": {"bw_bytes": 0, "total_ios": 0}}]}
    read, latency = measured(Scripted(fio=Ran(text=json.dumps(empty), status=0)))
    assert (read.value, latency.value) == (None, None)


def test_dd_reads_past_the_cache_where_there_is_no_fio():
    def dd(argv):
        return copied(256 * 4096, 0.512) if "bs=4096" in argv else copied(1024 * MIB, 2.0)

    runner = Scripted(dd=dd)
    read, latency = measured(runner)
    assert (read.value, latency.value) == (512.0, 2.0)
    assert all("iflag=direct" in argv for argv in runner.asked if "dd" in argv)


def test_what_was_read_until_the_limit_counts():
    cut = Ran(error=f"{100 * MIB} bytes (x) copied, 5.0 s, 20 MB/s\n", status=124, reason=Reason.TIMEOUT)
    assert measured(Scripted(dd=cut))[0].value == 20.0


def test_a_file_is_dropped_from_the_cache_where_direct_reads_are_unknown():
    def dd(argv):
        if "iflag=direct" in argv:
            return Ran(error="dd: failed to open: Invalid argument\n", status=1)
        return copied(0, 0.1) if "count=0" in argv else copied(512 * MIB, 1.0)

    runner = Scripted(dd=dd)
    read, latency = measured(runner)
    assert (read.value, "dropped from the cache" in read.detail) == (512.0, True)
    assert (latency.value, latency.reason) == (None, Reason.UNSUPPORTED)
    assert any("iflag=nocache" in argv and "count=0" in argv for argv in runner.asked)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"sh": Ran(text="", status=0)}, Reason.ABSENT),
        ({"sh": Ran(reason=Reason.NO_PERMISSION, detail="refused", status=1)}, Reason.NO_PERMISSION),
        ({}, Reason.TOOL_MISSING),
        ({"dd": Ran(error="dd: error reading: Input/output error\n", status=1)}, Reason.ABSENT),
    ],
)
def test_what_cannot_be_read_is_unknown(answers, reason):
    assert [(None, reason)] * 2 == [(one.value, one.reason) for one in measured(Scripted(**answers))]


def test_a_real_file_is_read_on_this_machine(tmp_path):
    with (tmp_path / "model.bin").open("wb") as file:
        file.truncate(65 * MIB)
    found = probe_storage("n1", LocalRunner(), str(tmp_path))
    read = found["storage_read_mib_s", "n1"]
    assert read.value, read.detail
    assert str(tmp_path / "model.bin") in read.detail


def node(*pci):
    cards = tuple(
        Card(name=f"n1/gpu{index}", node="n1", index=index, pci=one) for index, one in enumerate(pci)
    )
    return Node(name="n1", cards=cards)


def inside(answer, *pci):
    runner = Scripted(docker=answer)
    return probe_container(node(*pci), runner, "cuda:13")["cards_not_in_container", "n1"], runner


def test_cards_are_counted_by_what_a_container_lists():
    two = Ran(text="GPU-1, 00000000:1B:00.0\nGPU-2, 00000000:29:00.0\n", status=0)
    found, runner = inside(two, "0000:1b:00.0", "0000:29:00.0")
    assert (found.value, found.detail) == (0.0, "2 listed")
    assert {"--rm", "never", "none"} <= set(runner.asked[0])
    lost, _ = inside(two, "0000:1b:00.0", "0000:3b:00.0")
    assert (lost.value, "n1/gpu1" in lost.detail) == (1.0, True)
    assert inside(two, None, None, None)[0].value == 1.0


@pytest.mark.parametrize(
    "words",
    [
        'could not select device driver "" with capabilities: [[gpu]].',
        "failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        "nvidia-container-cli: initialization error: nvml error: driver not loaded",
    ],
)
def test_a_daemon_that_can_give_no_card_loses_all(words):
    found, _ = inside(Ran(error=f"docker: Error response from daemon: {words}\n", status=125), None, None)
    assert (found.value, words[:20] in found.detail) == (2.0, True)


@pytest.mark.parametrize(
    "answer",
    [
        Ran(reason=Reason.TOOL_MISSING, detail="docker is not installed"),
        Ran(error="Unable to find image 'cuda:13' locally\n", status=125),
        Ran(text="", status=0),
        Ran(text="sh: nvidia-smi: not found\n", status=127, reason=Reason.TOOL_MISSING),
    ],
)
def test_without_a_list_from_inside_nothing_is_known(answer):
    assert inside(answer, None)[0].value is None
