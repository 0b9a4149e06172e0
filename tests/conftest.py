"""What every test needs of the machine that it runs on."""

import signal
import sys
from functools import cache
from pathlib import Path

import pytest

from rackgate.plugin.options import is_active

_GROUPS = {"containers": ("docker", "real_engine", "packaging"), "racks": ("proof",)}
"""Marks of tests that count containers or time whole runs: those of a group run on one worker."""


def pytest_configure(config):
    """Let examples take as long as the machine is busy; an acceptance run has no examples."""
    if not is_active(config):
        from hypothesis import settings

        settings.register_profile("rackgate", deadline=None)
        settings.load_profile("rackgate")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one worker run a file's tests, and one each all whole racks and all containers."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return _group(config.rootpath / file) or file

    return Together(config, log)


@cache
def _group(path):
    text = path.read_text(encoding="utf-8")
    groups = [name for name, marks in _GROUPS.items() if any(f"pytest.mark.{mark}" in text for mark in marks)]
    return groups[0] if groups else ""


def pytest_collection_modifyitems(config, items):
    """Begin with the groups, so that no worker is left alone with one at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not _group(item.path))


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let processes that tests start be interrupted.

    A shell that starts pytest in the background has it ignore SIGINT, and every child would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def forked_pytest():
    """Runs pytest in forks, which start within a tenth of the time that a new interpreter takes."""
    sys.path.append(str(Path(__file__).parent / "runs"))
    from pytest_server import PytestServer

    server = PytestServer()
    yield server
    server.close()
