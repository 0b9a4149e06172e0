"""Runs the acceptance suites in processes of their own and reads what they recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rackgate.simulator.scenarios import scenarios

ROOT = Path(__file__).parents[2]
TRIES = 3
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins that cost seconds and change nothing about the run."""


@dataclass(frozen=True)
class Outcome:
    exit_status: int
    output: str
    folder: Path
    records: list[dict[str, Any]]

    def of(self, kind):
        return [record for record in self.records if record["kind"] == kind]

    def verdicts(self, slo_id):
        return {one["entity"]: one for one in self.of("verdict") if one["slo"] == slo_id}

    @property
    def junit(self):
        return ET.parse(self.folder / "views" / "default" / "junit.xml").getroot()

    @property
    def end(self):
        return self.of("end")[0]


@pytest.fixture
def run_ladder(tmp_path):
    """Run `pytest -m rack_acceptance` in the checkout and give what it recorded."""
    return lambda *options, timeout_s=400: _run(tmp_path / "run", options, timeout_s)


@pytest.fixture(scope="session")
def proof_runs(request, tmp_path_factory):
    """Run the scenarios that this session asks for, three at a time, and give each one's outcome.

    A run waits for most of its time, so that three share two cores. Those of a long profile begin.
    """
    keys = {item.callspec.params["proof_run"] for item in request.session.items if _asks(item)}
    keys |= {("no_failover", "fault_injection", "smoke")}  # the ladder's too
    folder = tmp_path_factory.mktemp("proofs")
    with ThreadPoolExecutor(max_workers=3) as pool:
        runs = {
            key: pool.submit(_run, folder / "-".join(key), _options(*key), 400)
            for key in sorted(keys, key=lambda key: (key[2] == "smoke", key))
        }
        yield lambda key: runs[key].result()
        pool.shutdown(cancel_futures=True)


def _asks(item):
    return "proof_run" in getattr(getattr(item, "callspec", None), "params", ())


def _options(scenario, stage, profile):
    size = scenarios()[scenario].size
    target = (f"--rack-target=sim:{size}",) if size else ()
    return "--rack-scenario", scenario, "--rack-stage", stage, "--rack-profile", profile, *target


@pytest.fixture
def run_pytest(tmp_path):
    """Run `pytest -m rack_acceptance` in the checkout and give the process, whatever it recorded."""
    return lambda *options, timeout_s=60: _process(tmp_path / "run", options, timeout_s)


# Taken once: pytest writes into the environment while the threads of the proofs read it.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("RACKGATE_", "PYTEST_"))
}


def _process(folder, options, timeout_s):
    command = [sys.executable, "-m", "pytest", "-m", "rack_acceptance", *WITHOUT]
    return subprocess.run(
        [*command, "--rack-out", str(folder), *options],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _run(folder, options, timeout_s):
    """Run until the machine lets the load generator be exact: a late one says UNKNOWN, and is right."""
    for number in range(TRIES):
        outcome = _run_once(folder.with_name(f"{folder.name}-{number}"), options, timeout_s)
        if not _disturbed(outcome, options):
            break
    return outcome


def _disturbed(outcome, options):
    handicapped = any(scenarios()[option].instrument for option in options if option in scenarios())
    reasons = {one["reason"] for one in outcome.of("verdict") if one["verdict"] == "UNKNOWN"}
    return "instrument" in reasons and not handicapped


def _run_once(folder, options, timeout_s):
    done = _process(folder, options, timeout_s)
    path = folder / "evidence" / "records.jsonl"
    assert path.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Outcome(done.returncode, done.stdout + done.stderr, folder, records)
