"""A test that did not look is never an accepted one: skips, xfails, early returns (cases PYT-01, PYT-09)."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent.parent / "cases" / "inputs"


def _marked(name):
    text = (CASES / name).read_text()
    return text.replace("import pytest\n", "import pytest\npytestmark = pytest.mark.rack_acceptance\n", 1)


def test_a_run_in_which_everything_is_skipped_is_not_accepted(pytester, run):
    pytester.makepyfile(test_skipped=_marked("PYT-01.py"))
    outcome = run("-m", "rack_acceptance", "--rack-out", "run")
    assert 5 == outcome.exit_code
    assert "NOT ACCEPTED: nothing was checked" == outcome.end["headline"]
    assert "2 skipped" in outcome.text
    assert {
        "test_skipped.py::test_one": "skipped: no NVIDIA GPU",
        "test_skipped.py::test_two": "skipped: no NVIDIA GPU",
    } == outcome.end["not_checked"]


def test_early_returns_and_expected_failures_are_not_accepted(pytester, run):
    pytester.makepyfile(test_nine=_marked("PYT-09.py"))
    outcome = run("-m", "rack_acceptance", "--rack-out", "run")
    assert "1 passed, 1 skipped, 1 xfailed" in outcome.text
    assert 5 == outcome.exit_code
    assert "NOT ACCEPTED: nothing was checked" == outcome.end["headline"]


def test_one_skipped_test_beside_checks_that_hold_is_not_accepted(pytester, ladder):
    pytester.makepyfile(test_nine=_marked("PYT-09.py"))
    outcome = ladder(stages=("preflight",))
    assert (1, False) == (outcome.exit_code, outcome.end["accepted"])
    assert outcome.end["headline"].endswith("2 tests skipped or xfailed, so not checked")
    assert "not checked: test_nine.py::test_skip: skipped: no gpu" in outcome.text
    assert "not checked: test_nine.py::test_xfail: expected to fail (xfail): no gpu" in outcome.text
    events = [record["text"] for record in outcome.of("event") if record["event"] == "not_checked"]
    assert 2 == len(events)


def test_a_skipped_test_that_is_no_acceptance_is_nobodys_business(pytester, ladder):
    pytester.makepyfile(test_other="import pytest\ndef test_other(): pytest.skip('windows only')")
    pytester.path.joinpath("values.json").write_text("{}")
    outcome = ladder("-m", "", stages=("preflight",))
    assert 0 == outcome.exit_code
    assert f"{outcome.end['counts']['declared'] + 1} skipped" in outcome.text


def test_a_module_that_leaves_itself_out_is_not_accepted(pytester, ladder):
    pytester.makepyfile(
        test_gone="""
        import pytest
        pytest.importorskip("no_such_driver")
        pytestmark = pytest.mark.rack_acceptance
        """
    )
    outcome = ladder(stages=("preflight",))
    assert 1 == outcome.exit_code
    assert "no_such_driver" in outcome.end["not_checked"]["test_gone.py"]


STAGE = """
import pytest
pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
{marks}
def test_slo(rack_slo, measured, rack_check):
    {body}
"""


@pytest.mark.parametrize(
    ("marks", "body", "seen"),
    [
        ("", "return", "absent (the test ended without asking for a verdict)"),
        ("", "pytest.skip('no card')", "excluded (the test was skipped: no card)"),
        ("@pytest.mark.skip(reason='later')", "pass", "excluded (the test was skipped: later)"),
        (
            "@pytest.mark.xfail(reason='known')",
            "raise KeyError",
            "excluded (the test was expected to fail (xfail): known)",
        ),
    ],
)
def test_a_check_that_ends_without_a_verdict_is_unknown(pytester, ladder, marks, body, seen):
    pytester.makepyfile(test_mine=STAGE.format(marks=marks, body=body))
    outcome = ladder(stages=())
    assert 1 == outcome.exit_code
    check = "preflight.card_present @ node1/gpu0"
    assert {"UNKNOWN"} == set(outcome.verdicts.values())
    (found,) = (one for one in outcome.cases["rackgate.preflight", check] if one.tag in ("failure", "error"))
    assert f"UNKNOWN {check}: {seen}, agreed == 1 bool" == found.get("message").split("\n")[0]


def test_no_mark_turns_a_fail_into_an_expected_one(pytester, ladder):
    marks = "@pytest.mark.xfail(reason='known')"
    pytester.makepyfile(test_mine=STAGE.format(marks=marks, body="rack_check(rack_slo, measured)"))
    check = "preflight.card_present @ node1/gpu0"
    outcome = ladder(stages=(), values={check: 0.0})
    assert 1 == outcome.exit_code
    assert outcome.cases["rackgate.preflight", check].find("failure").get("message").startswith("FAIL")


def test_what_the_target_declares_absent_is_skipped_with_the_declaration(pytester, ladder):
    text = pytester.path.joinpath("conftest.py").read_text()
    pytester.makeconftest(text.replace('gateway=Gateway(url="http://127.0.0.1:9"), ', ""))
    outcome = ladder(stages=("preflight", "cross_node"))
    assert 0 == outcome.exit_code
    declared = {record["check"]: record["message"] for record in outcome.of("verdict") if record["skipped"]}
    assert outcome.end["counts"]["declared"] == len(declared)
    through = {check for check in declared if check.startswith(("cross_node.", "preflight.gateway_"))}
    assert {"cross_node", "preflight"} == {check.split(".")[0] for check in through}
    assert all(declared[check].startswith("target paper declares no gateway") for check in through)
    for check, message in declared.items():
        case = outcome.cases[f"rackgate.{check.split('.')[0]}", check]
        assert message == case.find("skipped").get("message")


def test_what_cannot_be_seen_from_here_is_within_scope_only(pytester, ladder):
    text = pytester.path.joinpath("conftest.py").read_text()
    pytester.makeconftest(text.replace('may_break=("engine",)', 'may_break=("engine",), vantage="tenant"'))
    stages = (
        "selfcheck",
        "preflight",
        "single_card",
        "two_card",
        "cross_node",
        "soak",
        "fault_injection",
        "batch_retry",
    )
    outcome = ladder("--rack-stage", "", stages=stages)
    assert 0 == outcome.exit_code
    assert outcome.end["headline"].startswith("ACCEPTED WITHIN SCOPE tenant, ")
    assert 0 < outcome.end["counts"]["not_assessed"]


def test_nothing_collected_is_exit_5(pytester, run):
    outcome = run("-m", "rack_acceptance", "--rack-out", "run")
    assert (5, "NOT ACCEPTED: nothing was checked") == (outcome.exit_code, outcome.end["headline"])
