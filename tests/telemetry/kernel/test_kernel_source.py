import errno
import os
import stat
import time
from pathlib import Path

import pytest

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.kernel.local_source import KernelLogSource
from rackgate.telemetry.reading import kernel_event_kind


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


def test_a_log_without_a_line_of_a_kernel_is_no_evidence(tmp_path):
    path = tmp_path / "kern.log"
    path.write_text("")
    source = KernelLogSource(NODE, path, card_of=CARD)
    (watch,) = source.poll()
    assert (watch.value, watch.reason, "no line of a kernel" in watch.detail) == (None, Reason.ABSENT, True)
    append(path, "Feb 14 05:03:41 n1 systemd[1]: Started something.\n")
    assert [one.value for one in source.poll()] == [None]
    append(path, "Feb 14 05:03:42 n1 kernel: usb 1-1: new device\n")
    assert [one.value for one in source.poll()] == [1.0]
    source.close()


def test_a_stamp_without_a_zone_is_in_the_time_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        stamp = time.strftime("%b %d %H:%M:%S", time.localtime())
        path = tmp_path / "kern.log"
        path.write_text(f"{stamp} n1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, gone\n")
        source = KernelLogSource(NODE, path, card_of=CARD)
        (lost,) = new(source)
        assert abs(lost.t_ns - time.perf_counter_ns()) < 10e9
        source.close()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_event_without_a_time_came_since_the_look_before(log):
    append(log, "NVRM: Xid (PCI:0000:1b:00): 48, nobody knows when\n")
    source = KernelLogSource(NODE, log, card_of=CARD)
    assert [one.value for one in new(source)] == [31.0]
    now = time.perf_counter_ns()
    assert [event.code for event in source.book.window(now, now).unplaced] == [48]
    append(log, "NVRM: Xid (PCI:0000:1b:00): 79, now\n")
    (lost,) = new(source)
    assert (lost.value, now <= lost.t_ns <= time.perf_counter_ns()) == (79.0, True)
    source.close()


@pytest.mark.parametrize(
    ("text", "entity", "kind"),
    [
        ("Out of memory: Killed process 4242 (loader)", "n1", "oom"),
        ("mlx5_core 0000:5e:00.0: health_care: device's health compromised - fatal", "n1", "mlx5"),
        ("nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "n1/gpu0", "aer"),
        ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:1b:00.0", "n1/gpu0", "aer"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", "n1", "edac"),
    ],
)
def test_an_event_without_a_code_is_a_reading_with_its_kind_and_words(log, text, entity, kind):
    source = KernelLogSource(NODE, log, card_of=CARD)
    new(source)
    append(log, f"[{time.perf_counter_ns() / 1e9:.6f}] {text}\n")
    (one,) = new(source)
    assert (one.entity, one.field, kernel_event_kind(one.value)) == (entity, "kernel_event", kind)
    assert one.detail == text
    source.close()


def test_lines_that_the_kernel_overwrote_are_a_gap_in_one_look(tmp_path, monkeypatch):
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    really, record = os.read, f"4,1,{time.perf_counter_ns() // 1000},-;usb 1-1: new device\n".encode()
    answers = iter([OSError(errno.EPIPE, "overrun"), record, BlockingIOError(), record, BlockingIOError()])

    def read(descriptor, size):
        if size != 1 << 16:
            return really(descriptor, size)
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(stat, "S_ISCHR", lambda _: True)
    source = KernelLogSource(NODE, path)
    (gap,) = source.poll()
    assert (gap.value, gap.reason, "overwrote" in gap.detail) == (None, Reason.INSTRUMENT, True)
    assert [one.value for one in source.poll()] == [1.0]
    source.close()
    os.close(writer)


def test_the_kernels_own_device_gives_events_or_a_problem():
    source = KernelLogSource(NODE, Path("/dev/kmsg"))
    new(source)
    source.close()
    cure = "add this user to the group that may read it"
    known = (cure, "No such file", "no line of a kernel")
    assert source.problem == "" or any(text in source.problem for text in known)


def test_a_record_of_the_device_has_its_keys_cut_off():
    from rackgate.telemetry.kernel.log_line import parse_line

    record = parse_line("6,1,5000000,-;NVRM: Xid (PCI:0000:1b:00): 79, gone")
    assert (record.boot_us, record.from_kernel) == (5_000_000, True)
    assert parse_line("14,2,5000001,-;someone writes NVRM").from_kernel is False
