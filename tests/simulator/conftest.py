from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings


def _stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


class Processes:
    """What the kernel knows of processes."""

    @staticmethod
    def children_of(pid):
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        direct = [each for each in pids if (stat := _stat(each)) and int(stat[1]) == pid]
        return direct + [grand for each in direct for grand in Processes.children_of(each)]

    @staticmethod
    def alive(pid):
        stat = _stat(pid)
        return stat is not None and stat[0] not in ("Z", "X")


@pytest.fixture
def processes():
    return Processes


@pytest.fixture
def wait_until():
    def wait(condition, timeout_s=20.0):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def http():
    with httpx.Client(timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def rack():
    with start_rack(RackSettings()) as running:
        yield running


@pytest.fixture(scope="session")
def ask():
    def request(model="rackgate/simulated-8b", prompt="how are you", **more):
        return {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 6, **more}

    return request
