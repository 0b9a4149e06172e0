"""The examples of the fixtures' docstrings, run as a user would: one file each, on the simulated rack."""

import inspect
import sys
import textwrap
from pathlib import Path

import pytest

from rackgate_fixtures import plugin as fixtures

pytestmark = pytest.mark.slow

TINY = Path(__file__).parents[1] / "engines" / "tiny_engine.py"
MARKED = """import pytest
pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]

"""


def example_of(name):
    return textwrap.dedent(inspect.getdoc(getattr(fixtures, name)).split("Example::\n", 1)[1])


@pytest.fixture
def served(pytester, monkeypatch):
    """Put the command `serve` of an example into the path: a real engine of one model."""
    serve = pytester.mkdir("bin") / "serve"
    serve.write_text(f'#!/bin/sh\nexec {sys.executable} {TINY} "$@"\n', encoding="utf-8")
    serve.chmod(0o755)
    monkeypatch.setenv("PATH", str(serve.parent), prepend=":")


def test_the_example_of_each_fixture_runs_as_it_stands(pytester, run, served):
    pytester.makeconftest("")
    pytester.makepyfile(**{f"test_of_{name}": MARKED + example_of(name) for name in fixtures.__all__})
    asked = ("--rack-target", "sim:2x1", "--rack-stage", "preflight")
    outcome = run("-m", "rack_acceptance", "--rack-out", "run", *asked)
    assert f" {len(fixtures.__all__)} passed in " in outcome.text, outcome.text
    assert (0, {"preflight.doors @ rack": "PASS"}) == (outcome.exit_code, outcome.verdicts)
    moments = [(fault["moment"], fault["ok"]) for fault in outcome.of("fault")]
    assert [(moment, True) for moment in ("intend", "inject", "prove", "heal", "prove_healed")] == moments


ASKED_WRONG = """
def test_launcher(rack_engine):
    rack_engine("proces", model="tiny")

def test_settings(rack_engine):
    rack_engine("process", model="tiny", comand=["serve"])

def test_load(rack_offer):
    rack_offer("interactiv", [], stage="soak")
"""


def test_what_is_asked_by_a_wrong_name_is_told_with_the_names_that_there_are(pytester, run):
    pytester.makepyfile(MARKED + ASKED_WRONG)
    outcome = run("-m", "rack_acceptance", "--rack-out", "run")
    assert " 3 failed" in outcome.text, outcome.text
    launchers = "container, kubernetes, process, remote"
    assert f"ValueError: no launcher 'proces' is registered; there are: {launchers}" in outcome.text
    assert "ValueError: launcher 'process': unknown key 'comand'" in outcome.text
    assert "ValueError: no load 'interactiv' in the acceptance; there are: assistant," in outcome.text
