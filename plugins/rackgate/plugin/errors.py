"""The exceptions FAIL and UNKNOWN: they end a test item and begin its message with their name."""

from __future__ import annotations

from _pytest.outcomes import Failed


class Unmet(Failed):
    """A check that is not accepted; `str()` is the whole message."""

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


class FAIL(Unmet):
    """The value breaks the bound."""


class UNKNOWN(Unmet):
    """There is no value to judge, or it decides nothing: not accepted."""


FAIL.__module__ = UNKNOWN.__module__ = "builtins"
