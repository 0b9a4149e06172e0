"""What makes a pytest run an acceptance run, and where each option's value comes from."""

from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "rack_acceptance"),
        ("-m", "rack_acceptance and not slow"),
        ("-m", "slow or rack_acceptance"),
        ("-m", "not (slow or not rack_acceptance)"),
        ("--rack-profile", "smoke"),
        ("--rack-stop-on-fail",),
        ("--pyargs", "rackgate_suites.s1_preflight", "-k", "nothing"),
    ],
)
def test_asking_for_acceptance_activates(pytester, run, arguments):
    pytester.makeini("[pytest]\nmarkers =\n    slow: takes long\n")
    assert "rackgate: target paper (4 cards on 2 nodes, 4 engines)" in run("--collect-only", *arguments).text


@pytest.mark.parametrize("argument", ["--ignore=rackgate_suites", "--deselect=rackgate_suites"])
def test_naming_the_suites_to_leave_them_out_does_not_activate(run, argument):
    assert "rackgate:" not in run(argument).text


def test_a_malformed_expression_is_refused_by_pytest_itself(run):
    outcome = run("-m", "rack_acceptance and and")
    assert 4 == outcome.exit_code
    assert "Wrong expression passed to '-m'" in outcome.text


def test_the_command_line_wins_over_environment_over_ini_over_default(pytester, run, monkeypatch):
    def shown(*arguments):
        outcome = run("--collect-only", "-m", "rack_acceptance", *arguments)
        return outcome.line("rackgate: target").split("profile ")[1].split(",")[0], outcome.text

    assert "smoke" == shown()[0]
    pytester.makeini("[pytest]\nrack_profile = ci\n")
    assert ("ci", True) == (shown()[0], "--rack-profile=ci (ini rack_profile)" in shown()[1])
    monkeypatch.setenv("RACKGATE_PROFILE", "golive")
    profile, text = shown()
    assert ("golive", True) == (profile, "--rack-profile=golive (environment RACKGATE_PROFILE)" in text)
    profile, text = shown("--rack-profile", "strict")
    assert ("strict", True) == (profile, "--rack-profile=strict (command line)" in text)


def test_each_option_is_also_an_ini_value_and_an_environment_variable():
    from rackgate.plugin.options import OPTIONS

    names = {option.cli: (option.ini, option.environment) for option in OPTIONS}
    assert ("rack_stop_on_fail", "RACKGATE_STOP_ON_FAIL") == names["--rack-stop-on-fail"]
    assert len(OPTIONS) == len(set(names.values()))


def test_listing_the_checks_makes_no_run_folder(pytester, ladder):
    before = {path.name for path in pytester.path.iterdir()}
    outcome = ladder("--collect-only", "-q")
    assert 0 == outcome.exit_code
    assert "test_preflight.py::test_slo[preflight.card_present @ node1/gpu0]" in outcome.text
    after = {path.name for path in pytester.path.iterdir()}
    assert {"run", "rack-runs"} & (after - before) == set()


def test_listing_the_fixtures_makes_no_run_folder(pytester, run):
    outcome = run("--fixtures", "-m", "rack_acceptance", "--rack-out", "run")
    assert "rack_check" in outcome.text
    assert not outcome.folder.exists()


def test_the_default_folder_is_never_one_that_exists(pytester, run):
    now = datetime.now(UTC)
    for seconds in range(120):
        name = f"{now + timedelta(seconds=seconds):%Y%m%dT%H%M%SZ}-smoke"
        pytester.path.joinpath("rack-runs", name).mkdir(parents=True)
    run("-m", "rack_acceptance")
    (made,) = pytester.path.glob("rack-runs/*/evidence")
    assert made.parent.name.endswith("Z-smoke-2")


@pytest.mark.parametrize(
    "ini",
    [
        "",
        "[pytest]\n",
        "[pytest]\nasyncio_mode = auto\n",
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n",
    ],
)
def test_any_ini_will_do(pytester, ladder, ini):
    pytester.makeini(ini)
    assert 0 == ladder(stages=("preflight",)).exit_code
