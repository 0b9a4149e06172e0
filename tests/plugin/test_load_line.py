"""A long load says where it stands, and Ctrl-C keeps what it had measured."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackgate.evidence.record import read_records
from rackgate.loadgen.results.sample_file import read_samples

ROOT = Path(__file__).parents[2]
LONG = """
[load.mix]
duration_s = 600.0
reason = "longer than any test waits"
"""


@pytest.fixture
def soak(tmp_path):
    """Start a soak of ten minutes on a terminal; return the process and the terminal's other end."""
    started = []

    def start():
        (tmp_path / "long.toml").write_text(LONG)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "pytest", "-m", "rack_acceptance", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [
                *command,
                "--rack-target=sim:1x1",
                "--rack-stage=soak",
                f"--rack-slo={tmp_path / 'long.toml'}",
                f"--rack-out={tmp_path / 'run'}",
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        started.append((process, ours))
        return process, ours

    yield start
    for process, ours in started:
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(ours, words, limit_s=60.0):
    said, deadline = b"", time.monotonic() + limit_s
    while not all(word in said for word in words):
        if not select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            pytest.fail(f"not within {limit_s} s: {words} in {said[-2000:]!r}")
        try:
            said += os.read(ours, 65536)
        except OSError:
            pytest.fail(f"it ended: {said[-3000:]!r}")
    return said


def test_a_terminal_has_one_line_that_updates_and_ctrl_c_keeps_what_was_measured(soak, tmp_path):
    process, ours = soak()
    said = _read_until(ours, (b"achieved", b"hottest node1/gpu0", b"TTFT P50"))
    line = next(part for part in said.split(b"\r") if b"TTFT P50" in part)
    for words in (b"offered ", b"in flight", b"s left", b"errors 0.0%"):
        assert words in line
    assert b"\n" not in line
    process.send_signal(signal.SIGINT)
    _read_until(ours, (b"INTERRUPTED: not accepted",))
    assert 2 == process.wait(60)
    records = list(read_records(tmp_path / "run/evidence/records.jsonl"))
    (load,) = [record for record in records if record["kind"] == "load"]
    assert ("died", True) == (load["reason"], load["detail"].startswith("interrupted: "))
    table = read_samples(tmp_path / "run/evidence" / load["samples"])
    assert len(table.measured) == load["counters"]["scheduled"] > 0
    end = records[-1]
    (plan,) = [record for record in records if record["kind"] == "plan"]
    assert (False, len(plan["checks"])) == (end["accepted"], end["counts"]["UNKNOWN"])
