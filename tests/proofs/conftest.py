"""Runs the acceptance suites in processes of their own and reads what they recorded."""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
from proof_run import failed_selfcheck

ROOT = Path(__file__).parents[2]
TRIES = 3
AT_ONCE = 3
"""A run waits for most of its time: so many share two cores without making each other late."""
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


@dataclass(frozen=True)
class Runs:
    """Starts acceptance runs in the checkout. They may be asked for from several threads."""

    forked_pytest: Any

    def process(self, folder, options, timeout_s):
        """Run `pytest -m rack_acceptance`; return the ended process."""
        return self.forked_pytest.run(
            ["-m", "rack_acceptance", *WITHOUT, "--rack-out", folder, *options],
            folder=ROOT,
            environment=ENVIRONMENT,
            timeout_s=timeout_s,
        )

    def outcome(self, folder, options, disturbed, timeout_s=400):
        """Run until the machine let the load generator be exact: of a late one, UNKNOWN is right."""
        for number in range(TRIES):
            outcome = self._once(folder.with_name(f"{folder.name}-{number}"), options, timeout_s)
            if not disturbed(outcome):
                break
        return outcome

    def _once(self, folder, options, timeout_s):
        done = self.process(folder, options, timeout_s)
        path = folder / "evidence" / "records.jsonl"
        assert path.exists(), done.stdout[-3000:] + done.stderr[-3000:]
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return Outcome(done.returncode, done.stdout + done.stderr, folder, records)


# Taken once: pytest writes into the environment while the threads of the proofs read it.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("RACKGATE_", "PYTEST_"))
}


@pytest.fixture(scope="session")
def runs(forked_pytest):
    return Runs(forked_pytest)


@pytest.fixture
def run_ladder(runs, tmp_path):
    """Run `pytest -m rack_acceptance` in the checkout and give what it recorded."""
    return lambda *options: runs.outcome(tmp_path / "run", options, has_late_load)


@pytest.fixture
def run_pytest(runs, tmp_path):
    """Run `pytest -m rack_acceptance` in the checkout and give the process, whatever it recorded."""
    return lambda *options: runs.process(tmp_path / "run", options, timeout_s=60)


@pytest.fixture(scope="session")
def proof_runs(request, runs, tmp_path_factory):
    """Run the scenarios that this session asks for, several at a time, and give each one's outcome.

    Each is a `ProofRun`, the parameter `proof_run` of the tests. The longest begin.
    """
    asked = {item.callspec.params["proof_run"] for item in request.session.items if _asks(item)}
    folder = tmp_path_factory.mktemp("proofs")
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        started = {
            run: pool.submit(runs.outcome, folder / str(run), run.options, run.is_disturbed)
            for run in sorted(asked, key=lambda run: (bool(run.stage), run.profile == "smoke", str(run)))
        }
        yield lambda run: started[run].result()
        pool.shutdown(cancel_futures=True)


def _asks(item):
    return "proof_run" in getattr(getattr(item, "callspec", None), "params", ())


def has_late_load(outcome):
    unknown = (one for one in outcome.of("verdict") if one["verdict"] == "UNKNOWN")
    return failed_selfcheck(outcome) or any(one["reason"] == "instrument" for one in unknown)
