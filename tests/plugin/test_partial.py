"""A run that was not asked everything says so everywhere and is never certifiable."""

import re

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-k", "card_present"), "-k"),
        (("--deselect", "test_preflight.py::test_slo[preflight.gateway_request @ rack]"), "--deselect"),
        (("-x",), "-x/--maxfail"),
        (("--rack-only", "node1"), "--rack-only node1"),
        (("--rack-exclude", "node2/gpu1"), "--rack-exclude node2/gpu1"),
        (("-p", "cacheprovider", "--lf"), "--lf"),
    ],
)
def test_a_partial_run_says_why(ladder, arguments, why):
    outcome = ladder(*arguments, stages=("preflight",))
    assert 0 == outcome.exit_code
    assert (True, False) == (outcome.end["partial"], outcome.end["accepted"])
    assert why in " ".join(outcome.end["partial_why"])
    assert outcome.end["partial_why"] == outcome.of("run")[0]["partial_why"]
    assert outcome.end["headline"].startswith("PARTIAL RUN, nothing to certify")
    assert why in outcome.line("partial run (")


def test_naming_a_file_makes_the_run_partial(ladder):
    outcome = ladder("test_preflight.py", stages=("preflight", "two_card"))
    assert re.search(r"\d+ of \d+ checks not selected", " ".join(outcome.end["partial_why"]))
    assert {"preflight"} == {check.split(".")[0] for check in outcome.verdicts}


def test_a_plugin_that_deselects_makes_the_run_partial(extend, ladder):
    extend("\ndef pytest_collection_modifyitems(items):\n    del items[3:9]\n")
    outcome = ladder(stages=("preflight",))
    asked = len(outcome.of("plan")[0]["checks"])
    assert f"6 of {asked + 6} checks not selected" in outcome.end["partial_why"]


@pytest.mark.parametrize(
    ("arguments", "scope"),
    [
        (("--rack-exclude", "node2/gpu1"), "tested 3 of 4 cards on 2 nodes; excluded: node2/gpu1"),
        (("--rack-exclude", "node2"), "tested 2 of 4 cards on 2 nodes; excluded: node2/gpu0, node2/gpu1"),
        (("--rack-only", "node1"), "tested 2 of 4 cards on 2 nodes; not asked for: node2/gpu0, node2/gpu1"),
        (
            ("--rack-only", "node1", "--rack-exclude", "node1/gpu0"),
            "tested 1 of 4 cards on 2 nodes; not asked for: node2/gpu0, node2/gpu1; excluded: node1/gpu0",
        ),
        (
            ("--rack-only", "node2-gpu0"),
            "tested 1 of 4 cards on 2 nodes; not asked for: node1/gpu0, node1/gpu1, node2/gpu1",
        ),
    ],
)
def test_the_scope_is_said_everywhere(ladder, arguments, scope):
    outcome = ladder(*arguments, stages=("preflight",))
    left_out = scope.split("; ")[1:]
    parts = set(outcome.end["scope_text"].split("; "))
    assert {scope.split("; ")[0], *left_out} == parts
    assert outcome.end["scope_text"] == outcome.properties["rackgate.scope"]
    assert outcome.line("tested").startswith(outcome.end["scope_text"])
    assert "left out: " in outcome.line("rackgate: left out")
    entities = {name.split(" @ ")[1] for name in outcome.verdicts}
    assert not {unit for part in left_out for unit in part.split(": ")[1].split(", ")} & entities
    summary = (outcome.folder / "views" / "default" / "summary.md").read_text()
    assert outcome.end["scope_text"] in summary


def test_only_the_selfcheck_tests_no_card(ladder):
    outcome = ladder(stages=("selfcheck",))
    assert outcome.end["scope_text"].startswith("tested 0 of 4 cards on 2 nodes; not reached: node1/gpu0,")


def test_what_x_left_unasked_is_unknown(ladder):
    outcome = ladder("-x", stages=("preflight",), values={"preflight.engine_reachable @ node1/gpu1": 0.0})
    assert 1 == outcome.exit_code
    planned = [check["id"] for check in outcome.of("plan")[0]["checks"]]
    behind = planned[planned.index("preflight.engine_reachable @ node1/gpu1") + 1 :]
    assert not set(behind) & set(outcome.verdicts)
    assert (1, len(behind)) == (outcome.end["counts"]["FAIL"], outcome.end["counts"]["UNKNOWN"])
    assert len(behind) > 10
