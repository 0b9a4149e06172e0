import os
import stat
import time
from pathlib import Path

from waiting import until

from rackgate.hosts.runner import Command, LocalRunner
from rackgate.nouns.measurement import Reason


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_refusal_names_the_smallest_grant(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tool = script(
        tmp_path / "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    )
    ran = LocalRunner().run(Command(argv=(tool,), root=True, grant="the group adm"), 20.0)
    assert (ran.reason, "it needs the group adm" in ran.detail) == (Reason.NO_PERMISSION, True)


def test_sudo_is_tried_only_where_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(tmp_path / "sudo", f"printf '%s ' \"$@\" >> {tmp_path}/asked; echo fine")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = script(tmp_path / "tool", "echo 'permission denied' >&2; exit 1")
    command = Command(argv=(tool, "--all"))
    assert LocalRunner().run(command, 20.0).reason == Reason.NO_PERMISSION
    assert not (tmp_path / "asked").exists()
    assert LocalRunner(sudo=True).run(command, 20.0).text == "fine\n"
    assert (tmp_path / "asked").read_text() == f"-n {tool} --all "


def test_a_sudo_that_wants_a_password_is_no_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(tmp_path / "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = script(tmp_path / "tool", "echo 'permission denied' >&2; exit 1")
    ran = LocalRunner(sudo=True).run(Command(argv=(tool,)), 20.0)
    assert (ran.reason, "a sudoers rule" in ran.detail) == (Reason.NO_PERMISSION, True)


def test_a_local_command_that_hangs_takes_its_children_with_it(tmp_path):
    tool = script(tmp_path / "hang", f"sleep 600 & echo $! > {tmp_path}/child; wait")
    begin = time.monotonic()
    ran = LocalRunner().run(Command(argv=(tool,)), 1.0)
    assert (ran.reason, time.monotonic() - begin < 60) == (Reason.TIMEOUT, True)
    stat = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def gone():
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(gone)


def test_a_tool_that_is_not_there_is_missing():
    ran = LocalRunner().run(Command(argv=("no-such-tool-here",)), 20.0)
    assert (ran.reason, ran.detail) == (Reason.TOOL_MISSING, "no-such-tool-here is not installed")
