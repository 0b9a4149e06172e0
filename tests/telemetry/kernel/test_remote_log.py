import json
import time

import pytest

from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.kernel.remote_source import RemoteKernelLog
from rackgate.telemetry.reading import kernel_event_kind


def new(source):
    return [one for one in source.poll() if one.field != "xid_watch"]


XID = "NVRM: Xid (PCI:0000:1b:00): {}, something"
CARD = {"0000:1b:00.0": "n1/gpu0"}
UPTIME_S = 5000.0


class Node:
    """A node whose clock began 5000 s ago, with a journal, or only a ring buffer."""

    name = "n1"

    def __init__(self, *, journal=True):
        self.lines = []
        self.asked = []
        self.journal = journal
        self.refused = False
        self.hidden = ()
        self.boot_id = "boot-1"
        self.began = time.monotonic() - UPTIME_S

    def write(self, text, ago_s=0.0, transport="kernel"):
        self.lines.append((time.monotonic() - self.began - ago_s, text, transport))

    def read(self, patterns, _):
        uptime = Ran(text=f"{time.monotonic() - self.began:.2f} 1.00\n", status=0)
        return {patterns[0]: uptime, patterns[1]: Ran(text=f"{self.boot_id}\n", status=0)}

    def reboot(self, boot_id, ago_s):
        self.lines, self.boot_id, self.began = [], boot_id, time.monotonic() - ago_s

    def run(self, command, _):
        self.asked.append(command.argv)
        if self.refused:
            return Ran(reason=Reason.NO_PERMISSION, detail=f"refused; it needs {command.grant}", status=1)
        if command.argv[0] in self.hidden:
            return Ran(status=0)
        if command.argv[0] == "dmesg":
            text = "".join(f"[{at_s:12.6f}] {line}\n" for at_s, line, _ in self.lines)
            return Ran(text=text, status=0)
        if not self.journal:
            return Ran(reason=Reason.TOOL_MISSING, detail="journalctl is not installed", status=127)
        last = command.argv[-1]
        first = int(last.split("=")[1]) + 1 if last.startswith("--after-cursor") else 0
        return Ran(text="".join(self._entry(number) for number in range(first, len(self.lines))), status=0)

    def close(self):
        pass

    def _entry(self, number):
        at_s, line, transport = self.lines[number]
        entry = {
            "__CURSOR": str(number),
            "_TRANSPORT": transport,
            "_SOURCE_MONOTONIC_TIMESTAMP": str(round(at_s * 1e6)),
            "MESSAGE": line,
        }
        return json.dumps(entry) + "\n"


@pytest.mark.parametrize("journal", [True, False])
def test_each_event_comes_once_and_on_our_clock(journal):
    node = Node(journal=journal)
    node.write(XID.format(31), ago_s=100.0)
    log = RemoteKernelLog("n1", node, card_of=CARD, every_s=0.0)
    (old,) = new(log)
    assert (old.entity, old.value) == ("n1/gpu0", 31.0)
    assert abs(time.perf_counter_ns() - 100e9 - old.t_ns) < 5e9
    node.write(XID.format(79))
    assert [one.value for one in new(log)] == [79.0]
    assert new(log) == []
    now = time.perf_counter_ns()
    placed = log.book.window(now - 10 * 10**9, now + 10**9)
    assert ([event.code for event in placed.inside], [event.code for event in placed.earlier]) == ([79], [31])


def test_an_empty_journal_is_no_evidence_and_dmesg_is_asked():
    node = Node()
    node.write(XID.format(79))
    node.hidden = ("journalctl",)
    log = RemoteKernelLog("n1", node, card_of=CARD, every_s=0.0)
    assert [one.value for one in new(log)] == [79.0]
    assert [argv[0] for argv in node.asked] == ["journalctl", "dmesg"]


def test_two_empty_logs_are_a_lack_of_permission_that_names_the_groups():
    node = Node()
    node.hidden = ("journalctl", "dmesg")
    log = RemoteKernelLog("n1", node, every_s=0.0)
    (watch,) = log.poll()
    assert (watch.value, watch.reason) == (None, Reason.NO_PERMISSION)
    assert "the group adm or systemd-journal" in watch.detail


def test_a_journal_that_is_silent_later_has_nothing_new():
    node = Node()
    node.write("usb 1-1: new device")
    log = RemoteKernelLog("n1", node, every_s=0.0)
    assert [[one.value for one in log.poll()] for _ in range(2)] == [[1.0], [1.0]]
    assert {argv[0] for argv in node.asked} == {"journalctl"}


@pytest.mark.parametrize("boot_id", ["boot-2", ""])
def test_a_node_that_was_started_anew_says_so_and_is_read_from_its_new_boot_on(boot_id):
    node = Node()
    node.boot_id = "boot-1" if boot_id else ""
    node.write(XID.format(31), ago_s=1.0)
    log = RemoteKernelLog("n1", node, card_of=CARD, every_s=0.0)
    new(log)
    node.reboot(boot_id, ago_s=60.0)
    node.write(XID.format(79), ago_s=5.0)
    gap, reboot, lost = log.poll()
    assert (gap.field, gap.value, gap.reason) == ("xid_watch", None, Reason.INSTRUMENT)
    assert "n1 rebooted at 20" in gap.detail
    assert kernel_event_kind(reboot.value) == "reboot"
    assert reboot.detail.startswith("n1 rebooted at 20")
    assert abs(time.perf_counter_ns() - 60e9 - reboot.t_ns) < 5e9
    assert (lost.entity, lost.value) == ("n1/gpu0", 79.0)
    assert [one.value for one in log.poll()] == [1.0]


def test_a_ring_buffer_that_ran_over_is_a_gap():
    node = Node(journal=False)
    node.write("usb 1-1: new device", ago_s=10.0)
    log = RemoteKernelLog("n1", node, every_s=0.0)
    assert [one.value for one in log.poll()] == [1.0]
    node.lines = []
    node.write("usb 1-1: another device")
    (gap,) = log.poll()
    assert (gap.value, gap.reason, "ran over" in gap.detail) == (None, Reason.INSTRUMENT, True)
    assert [one.value for one in log.poll()] == [1.0]


def test_lines_without_a_stamp_are_told_once():
    node = Node(journal=False)
    text = XID.format(31) + "\n"
    no_journal = Ran(reason=Reason.TOOL_MISSING, status=127)
    node.run = lambda command, _: Ran(text=text, status=0) if command.argv[0] == "dmesg" else no_journal
    log = RemoteKernelLog("n1", node, card_of=CARD, every_s=0.0)
    assert (new(log), new(log)) == ([], [])
    text += XID.format(31) + "\n" + XID.format(79) + "\n"
    assert [one.value for one in new(log)] == [31.0, 79.0]
    assert new(log) == []


def test_a_log_that_is_asked_seldom_is_asked_when_it_is_hurried():
    node = Node()
    node.write("usb 1-1: new device")
    log = RemoteKernelLog("n1", node, every_s=3600.0)
    assert [len(log.poll()), len(log.poll())] == [1, 0]
    log.hurry()
    assert [len(log.poll()), len(log.poll())] == [1, 0]


def test_a_journal_is_asked_only_for_what_is_new():
    node = Node()
    node.write("usb 1-1: new device")
    log = RemoteKernelLog("n1", node, every_s=0.0)
    new(log)
    new(log)
    assert node.asked[0][-1] == "--boot"
    assert node.asked[1][-1] == "--after-cursor=0"


def test_what_a_program_wrote_under_the_kernels_name_does_not_count():
    node = Node()
    node.write("usb 1-1: new device")
    node.write(XID.format(79), transport="syslog")
    log = RemoteKernelLog("n1", node, card_of=CARD, every_s=0.0)
    (fake,) = new(log)
    assert (fake.entity, fake.field, kernel_event_kind(fake.value)) == ("n1", "kernel_event", "lookalike")


def test_a_log_that_may_not_be_read_says_what_it_needs():
    node = Node()
    node.refused = True
    log = RemoteKernelLog("n1", node, every_s=0.0)
    assert new(log) == []
    assert "it needs the group adm" in log.problem
