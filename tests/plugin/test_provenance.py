"""What evidence is worth, whatever the target declares."""

import pytest

from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings
from rackgate_reports.evidence import load_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """One simulated node of two cards."""
    with start_rack(
        RackSettings(nodes=1, cards=2, scenario="healthy", seed=1), log_dir=tmp_path_factory.mktemp("logs")
    ) as rack:
        yield rack


@pytest.fixture
def accepted(pytester, run, live):
    """Accept one engine of the simulated rack as if it were anyone's."""

    def accepted(*arguments):
        pytester.makeconftest("")
        engine = live.engines[0]
        return run(
            *("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out=run", *arguments),
            *(f"--rack-target={engine.url}", f"--rack-model={engine.spec.model}", "--rack-stage=preflight"),
        )

    return accepted


def test_an_endpoint_that_is_our_simulator_is_graded_simulated(accepted):
    outcome = accepted()
    assert ("unproven", "simulated") == (outcome.of("run")[0]["grade"], outcome.end["grade"])
    (event,) = [event for event in outcome.of("event") if event["event"] == "grade"]
    assert "endpoint is the simulated engine" in event["text"]
    assert "simulated" == outcome.properties["rackgate.grade"]
    assert "evidence grade: SIMULATED" in outcome.text
    assert "simulated" == load_run(outcome.folder).grade
    assert outcome.folder.joinpath("views/default/summary.md").read_text().count("**SIMULATED.**")


def test_a_url_is_not_taken_for_a_rack(accepted):
    outcome = accepted()
    by_row = {record["slo"]: record["skipped"] for record in outcome.of("verdict")}
    assert ("not_assessed", "declared", "") == (
        by_row["preflight.card_present"],
        by_row["preflight.gateway_request"],
        by_row["preflight.first_request"],
    )


def test_the_simulated_engine_is_told_behind_any_declaration(pytester, run, live):
    pytester.makeconftest("")
    engine = live.engines[0]
    pytester.path.joinpath("rack.toml").write_text(
        f"""
        [target]
        name = "rack"
        model = "{engine.spec.model}"
        [[node]]
        name = "n1"
        cards = 1
        [[engine]]
        name = "e"
        launcher = "remote"
        url = "{engine.url}"
        cards = ["n1/gpu0"]
        """
    )
    outcome = run(
        *("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out=run"),
        *("--rack-target=rack.toml", "--rack-stage=preflight"),
    )
    assert ("accelerator", "simulated") == (outcome.of("run")[0]["grade"], outcome.end["grade"])


def test_an_engine_that_refuses_is_not_tested(pytester, run):
    pytester.makeconftest("")
    outcome = run(
        *("--pyargs", "rackgate_suites", "-m", "rack_acceptance", "--rack-out=run", "--rack-model=m"),
        *("--rack-target=http://127.0.0.1:9", "--rack-stage=preflight"),
    )
    assert 1 == outcome.exit_code
    assert "tested 0 of 1 engine; never answered: endpoint" == outcome.end["scope_text"]
    assert "unproven" == outcome.end["grade"]
