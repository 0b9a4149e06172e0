"""The pytest plugin: options, hooks and markers for everyone, the rest only in an acceptance run."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import pytest

from rackgate.plugin import options as rack_options

if TYPE_CHECKING:
    from rackgate.plugin.startup import Session

__all__ = ["SESSION"]

SESSION: pytest.StashKey[Session] = pytest.StashKey()
"""What an active run keeps on `config.stash`."""

_NEAR = 0.75
MARKERS = (
    "rack_acceptance: a check of the acceptance suites; select it with -m rack_acceptance",
    "rack_stage(name): the stage that a test of your own belongs to",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, the same names in the ini file."""
    rack_options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks."""
    from rackgate.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; in an acceptance run read every file and prepare the run."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if hasattr(config, "workerinput") or config.getoption("help", default=False):
        return
    if not rack_options.is_active(config):
        return
    _refuse_other_plugins(config)
    from rackgate.plugin.shipped import Shipped
    from rackgate.plugin.startup import prepare

    config.pluginmanager.register(Shipped(), "rackgate-shipped")
    config.stash[SESSION] = prepare(config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a marker expression that selects nothing because of a typo; every marker is known by now."""
    expression = rack_options.marker_expression(session.config)
    words = expression.idents() if expression is not None else frozenset()
    if not words:
        return
    known = {re.split(r"[:(]", line)[0].strip() for line in session.config.getini("markers")}
    for word in sorted(words - known):
        close = difflib.get_close_matches(word, known, n=1, cutoff=_NEAR)
        # An unrelated project may use markers that it never registered: only our own is our business.
        if SESSION in session.config.stash or close == ["rack_acceptance"]:
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(sorted(known))}"
            raise pytest.UsageError(f"-m: unknown marker '{word}'{hint}")


def _refuse_other_plugins(config: pytest.Config) -> None:
    def given(name: str) -> bool:
        return bool(config.getoption(name, default=None))

    if given("numprocesses") or given("tx") or config.getoption("dist", default="no") != "no":
        raise pytest.UsageError(
            "rackgate measures one rack from one process: with pytest-xdist every worker would start its own"
            " engines on the same cards. Run without -n / --dist."
        )
    if given("reruns") or given("only_rerun") or _ini(config, "reruns"):
        raise pytest.UsageError(
            "rackgate keeps every verdict: --reruns would turn a FAIL into a green JUnit. Run without it."
        )
    if config.pluginmanager.hasplugin("randomly") or given("random_order") or given("random_order_bucket"):
        raise pytest.UsageError(
            "rackgate runs its stages in order: run without random ordering"
            " (-p no:randomly, no --random-order)."
        )
    if given("timeout") or _ini(config, "timeout"):
        raise pytest.UsageError(
            "rackgate sets its own deadlines: a per-test timeout would cut a measurement."
            " Run with -p no:timeout."
        )


def _ini(config: pytest.Config, name: str) -> bool:
    try:
        return bool(config.getini(name))
    except ValueError:
        return False
