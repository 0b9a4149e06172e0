"""In a project that asks for no acceptance the plugin is not noticed."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.own_process

HEAVY = (
    "docker",
    "httpx",
    "hypothesis",
    "jinja2",
    "numpy",
    "pyarrow",
    "pydantic",
    "pynvml",
    "ray",
    "testcontainers",
)
PROBE = f"""
import json, sys, pathlib
def pytest_unconfigure(config):
    ours = [name for name in ("rackgate.plugin", "rackgate_fixtures.plugin", "rackgate_reports.plugin")
            if config.pluginmanager.hasplugin(name)]
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    pathlib.Path("probe.json").write_text(json.dumps([ours, heavy]))
"""


@pytest.fixture
def unrelated(pytester):
    """A project of somebody else."""
    pytester.makeconftest(PROBE)
    pytester.path.joinpath("values.json").unlink()
    pytester.makepyfile(test_theirs="def test_theirs(): assert True")
    return pytester


def _files(pytester):
    left = {str(path.relative_to(pytester.path)) for path in pytester.path.rglob("*")}
    pytesters_own = ("__pycache__", "runpytest-", "stdout", "stderr")
    return {name for name in left if not any(word in name for word in pytesters_own)}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-m", "not rack_acceptance"),
        ("-m", "not (slow or rack_acceptance)"),
        ("-k", "rack_acceptance or theirs"),
    ],
)
def test_an_unrelated_project_gets_no_file_and_no_heavy_import(unrelated, run, arguments):
    before = _files(unrelated)
    outcome = run("-p", "no:hypothesispytest", *arguments)
    assert 0 == outcome.exit_code
    ours, heavy = json.loads(unrelated.path.joinpath("probe.json").read_text())
    assert ["rackgate.plugin", "rackgate_fixtures.plugin", "rackgate_reports.plugin"] == ours
    assert [] == heavy
    assert before | {"probe.json"} == _files(unrelated)
    assert "rackgate:" not in outcome.text


def test_the_environment_alone_does_not_activate(unrelated, run, monkeypatch):
    monkeypatch.setenv("RACKGATE_TARGET", "sim")
    monkeypatch.setenv("RACKGATE_PROFILE", "nonsense")
    assert "rackgate:" not in run().text


def test_an_ini_value_alone_does_not_activate(unrelated, run):
    unrelated.makeini("[pytest]\nrack_profile = nonsense\n")
    outcome = run()
    assert (0, False) == (outcome.exit_code, "rackgate:" in outcome.text)


def test_importing_the_entry_points_imports_nothing_heavy():
    code = (
        "import sys, rackgate.plugin, rackgate.plugin.hookspecs;"
        "import rackgate_fixtures.plugin, rackgate_reports.plugin;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "[]" == printed.strip()


def test_the_help_lists_every_option_and_opens_no_run(unrelated, run):
    from rackgate.plugin.options import OPTIONS

    outcome = run("--help", "-m", "rack_acceptance")
    assert 0 == outcome.exit_code
    assert [] == [option.cli for option in OPTIONS if option.cli not in outcome.text]
    assert [] == [option.ini for option in OPTIONS if option.ini not in outcome.text]
    assert not unrelated.path.joinpath("rack-runs").exists()


def test_a_rack_fixture_outside_a_run_says_what_is_missing(unrelated, run):
    unrelated.makepyfile(test_theirs="def test_theirs(rack_run): pass")
    assert "need an acceptance run: give -m rack_acceptance" in run().text
