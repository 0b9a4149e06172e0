from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackgate.batch.checker import check_batch
from rackgate.batch.output_file import OutputFile
from rackgate.batch.runner import RunnerOptions, run_batch
from rackgate.nouns.verdict import Verdict

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path


def ask(count: int) -> bytes:
    lines = [
        {
            "custom_id": f"t{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"n \u00e9{number % 2}"}]},
        }
        for number in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def run(folder: Path, engine, concurrency: int = 2):
    return run_batch(
        RunnerOptions(
            input_path=folder / "in.jsonl",
            output_path=folder / "out.jsonl",
            url=engine.url,
            model="m",
            concurrency=concurrency,
        )
    )


def whole_lines(data: bytes) -> int:
    """Lines of `data` that hold a whole record, the last one with or without its newline."""
    lines = data.split(b"\n")
    return sum(line.endswith(b"}") and line.count(b"{") == line.count(b"}") for line in lines)


def test_death_at_every_byte_of_the_output_loses_and_doubles_nothing(tmp_path, engine):
    asked = ask(3)
    (tmp_path / "in.jsonl").write_bytes(asked)
    run(tmp_path, engine)
    out = tmp_path / "out.jsonl"
    whole = out.read_bytes()
    for length in range(len(whole)):
        before = whole[:length]
        out.write_bytes(before)
        outcome = run(tmp_path, engine)
        after = out.read_bytes()
        assert 3 - whole_lines(before) == outcome.sent, before
        report = check_batch(asked, after, before_retry=before, after_full_retry=after)
        assert (Verdict.PASS, 3) == (report.verdict, report.terminal), before
    assert 0 == run(tmp_path, engine).sent
    assert after == out.read_bytes()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), st.integers(1, 5))
def test_a_row_of_deaths_keeps_what_was_final(tmp_path_factory, engine, cuts, concurrency):
    folder = tmp_path_factory.mktemp("deaths")
    asked = ask(6)
    (folder / "in.jsonl").write_bytes(asked)
    out = folder / "out.jsonl"
    run(folder, engine, concurrency)
    before = b""
    for cut in cuts:
        whole = out.read_bytes()
        before = whole[: int(len(whole) * cut)]
        out.write_bytes(before)
        run(folder, engine, concurrency)
        report = check_batch(asked, out.read_bytes(), before_retry=before)
        assert (6, (), (), ()) == (report.terminal, report.overwritten, report.duplicated, report.unreadable)


@pytest.mark.parametrize("seed", range(4))
def test_real_kills_at_any_moment_lose_and_double_nothing(seed, tmp_path, engine):
    asked = ask(30)
    (tmp_path / "in.jsonl").write_bytes(asked)
    engine.delay_s = 0.02
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "rackgate.batch.runner", "--concurrency", "3", "--model", "m"]
    command += ["--input", str(tmp_path / "in.jsonl"), "--output", str(out), "--url", engine.url]
    generator = random.Random(seed)
    before = b""
    for target in sorted(generator.sample(range(1, 29), 2)):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as runner:
            deadline = time.monotonic() + 30
            while not out.exists() or out.read_bytes().count(b"\n") < target:
                assert time.monotonic() < deadline
                time.sleep(generator.uniform(0.0, 0.004))
            os.kill(runner.pid, signal.SIGKILL)
        after = out.read_bytes()
        assert () == check_batch(asked, after, before_retry=before).overwritten
        before = after
    assert 0 == subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=60).returncode
    finished = out.read_bytes()
    served = len(engine.bodies)
    assert served <= 30 + 2 * 3, "a death costs at most the requests in flight"
    assert 0 == subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=60).returncode
    report = check_batch(asked, finished, before_retry=before, after_full_retry=out.read_bytes())
    assert (Verdict.PASS, 30, served) == (report.verdict, report.terminal, len(engine.bodies))


def test_a_crash_before_the_journal_is_whole_does_not_lock_the_owner_out(tmp_path, engine):
    (tmp_path / "in.jsonl").write_bytes(ask(2))
    (tmp_path / "out.jsonl").write_bytes(b"")
    (tmp_path / "out.jsonl.journal.new").write_bytes(b'{"schema":1,"inp')
    assert 2 == run(tmp_path, engine).written
    assert not (tmp_path / "out.jsonl.journal.new").exists()


def test_a_slow_disk_does_not_widen_what_a_death_costs(tmp_path, engine, monkeypatch):
    (tmp_path / "in.jsonl").write_bytes(ask(12))
    unwritten, written = [], 0
    append = OutputFile.append

    def append_slowly(self, lines):
        nonlocal written
        time.sleep(0.02)
        unwritten.append(len(engine.bodies) - written)
        append(self, lines)
        written += lines.count(b"\n")

    monkeypatch.setattr(OutputFile, "append", append_slowly)
    assert run(tmp_path, engine, concurrency=3).written == 12
    assert max(unwritten) <= 3
