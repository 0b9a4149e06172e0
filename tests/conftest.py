"""What every test needs of the machine that it runs on."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """Let processes that tests start be interrupted.

    A shell that starts pytest in the background has it ignore SIGINT, and every child would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
