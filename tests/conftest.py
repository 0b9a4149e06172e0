"""What every test needs of the machine that it runs on."""

import signal
from functools import cache

import pytest
from hypothesis import settings

# An example takes as long as the machine is busy: that says nothing of the code.
settings.register_profile("rackgate", deadline=None)
settings.load_profile("rackgate")

_SLOW = ("proof", "real_engine", "packaging", "docker")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one worker run a file's tests, and one all that is slow.

    What is slow counts containers and times whole runs: side by side it would see itself.
    """
    from xdist.scheduler import LoadFileScheduling

    slow = {str(path) for path in config.rootpath.glob("tests/**/*.py") if _is_slow(path)}

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "slow" if str(config.rootpath / file) in slow else file

    return Together(config, log)


@cache
def _is_slow(path):
    text = path.read_text(encoding="utf-8")
    return any(f"pytest.mark.{mark}" in text for mark in _SLOW)


def pytest_collection_modifyitems(config, items):
    """Begin with what is slow, so that no worker is left alone with it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not _is_slow(item.path))


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let processes that tests start be interrupted.

    A shell that starts pytest in the background has it ignore SIGINT, and every child would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
