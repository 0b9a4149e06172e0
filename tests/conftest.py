"""What every test needs of the machine that it runs on."""

import signal

import pytest
from hypothesis import settings

# An example takes as long as the machine is busy: that says nothing of the code.
settings.register_profile("rackgate", deadline=None)
settings.load_profile("rackgate")

_SLOW = ("proof", "real_engine", "packaging", "docker")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one worker run a file's tests, and one all files that start or count containers."""
    from xdist.scheduler import LoadFileScheduling

    counting = {str(path) for path in config.rootpath.glob("tests/**/*.py") if _counts_containers(path)}

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "containers" if str(config.rootpath / file) in counting else file

    return Together(config, log)


def _counts_containers(path):
    return "pytest.mark.docker" in path.read_text(encoding="utf-8")


def pytest_collection_modifyitems(config, items):
    """Begin with what takes longest, so that no worker is left alone with it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not any(item.get_closest_marker(mark) for mark in _SLOW))


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let processes that tests start be interrupted.

    A shell that starts pytest in the background has it ignore SIGINT, and every child would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
