"""What every test needs of the machine that it runs on."""

import signal

import pytest
from hypothesis import settings

# An example takes as long as the machine is busy: that says nothing of the code.
settings.register_profile("rackgate", deadline=None)
settings.load_profile("rackgate")

_SLOW = ("proof", "real_engine", "packaging", "docker")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Tell xdist what one worker runs after another: a file, and whatever counts containers.

    What takes longest begins first, so that no worker is left alone with it at the end.
    """
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = "docker" if item.get_closest_marker("docker") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not any(item.get_closest_marker(mark) for mark in _SLOW))


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let processes that tests start be interrupted.

    A shell that starts pytest in the background has it ignore SIGINT, and every child would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
