import time
from pathlib import Path

import pytest

from rackgate.measurement import Reason
from rackgate.target import Card, Node
from rackgate.telemetry.kernel_source import KernelLogSource


def new(source):
    return [one for one in source.poll() if one.field != "xid_watch"]


NODE = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0),))
CARD = {"0000:1b:00.0": "n1/gpu0"}


def xid(code, at_s=None, pci="0000:1b:00"):
    at = time.perf_counter_ns() / 1e9 if at_s is None else at_s
    return f"[{at:.6f}] NVRM: Xid (PCI:{pci}): {code}, something\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(xid(31, 1.0))
    return path


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_each_event_is_one_reading_of_its_card(log):
    source = KernelLogSource(NODE, log, card_of=CARD)
    assert [one.value for one in new(source)] == [31.0]
    assert new(source) == []
    append(log, xid(79) + xid(13, pci="0000:99:00"))
    assert [(one.entity, one.field, one.value) for one in new(source)] == [
        ("n1/gpu0", "xid", 79.0),
        ("n1", "xid", 13.0),
    ]
    source.close()


def test_only_events_inside_the_window_count(log):
    source = KernelLogSource(NODE, log, card_of=CARD)
    begin = time.perf_counter_ns()
    append(log, xid(79))
    new(source)
    placed = source.book.window(begin - 10**6, time.perf_counter_ns() + 10**6)
    assert [event.code for event in placed.inside] == [79]
    assert [event.code for event in placed.earlier] == [31]
    source.close()


def test_a_source_can_begin_at_the_end(log):
    source = KernelLogSource(NODE, log, card_of=CARD, from_start=False)
    assert new(source) == []
    append(log, xid(48))
    assert [one.value for one in new(source)] == [48.0]
    source.close()


def test_half_a_line_waits_for_its_end(log):
    source = KernelLogSource(NODE, log, card_of=CARD)
    new(source)
    whole = xid(79)
    append(log, whole[:30])
    assert new(source) == []
    append(log, whole[30:])
    assert [one.value for one in new(source)] == [79.0]
    source.close()


def test_a_rotated_log_is_followed(log, tmp_path):
    source = KernelLogSource(NODE, log, card_of=CARD)
    new(source)
    log.rename(tmp_path / "kern.log.1")
    log.write_text(xid(62))
    assert [one.value for one in new(source)] == [62.0]
    source.close()


def test_a_message_in_pieces_is_one_event(log):
    source = KernelLogSource(NODE, log)
    new(source)
    append(log, "[9.0] NVRM: API mismatch: the client has the version 550.90.07, but\n")
    assert new(source) == []
    append(log, "NVRM: this kernel module has the version 550.54.15.  Please\n")
    append(log, "NVRM: make sure that this kernel module and all NVIDIA driver\n")
    append(log, "NVRM: components have the same version.\n")
    new(source)
    assert source.book.events[-1].details == {"client": "550.90.07", "module": "550.54.15"}
    source.close()


def test_a_log_that_cannot_be_read_is_a_problem_and_no_health(tmp_path):
    source = KernelLogSource(NODE, tmp_path / "nothing")
    (watch,) = source.poll()
    assert (watch.field, watch.value, watch.reason) == ("xid_watch", None, Reason.ABSENT)
    assert "No such file" in watch.detail


def test_a_log_that_is_read_says_so(log):
    source = KernelLogSource(NODE, log)
    assert [(one.entity, one.value) for one in source.poll() if one.field == "xid_watch"] == [("n1", 1.0)]
    source.close()


def test_the_kernels_own_device_gives_events_or_a_problem():
    source = KernelLogSource(NODE, Path("/dev/kmsg"))
    new(source)
    source.close()
    cure = "add this user to the group that may read it"
    assert source.problem == "" or cure in source.problem or "No such file" in source.problem


def test_a_record_of_the_device_has_its_keys_cut_off():
    from rackgate.telemetry.log_line import parse_line

    record = parse_line("6,1,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, gone")
    assert (record.boot_us, record.from_kernel) == (5_000_000, True)
    assert parse_line("14,2,5000001,-;someone writes NVRM").from_kernel is False
