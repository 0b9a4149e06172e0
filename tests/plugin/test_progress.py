"""What a run says while it runs."""

import pytest

pytestmark = pytest.mark.slow

SPEAKS = """
import pytest
pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
def test_speaks(rack_run):
    rack_run.say("waiting for a token")
"""


@pytest.mark.parametrize(("quiet", "told"), [((), True), (("-q",), True), (("-qq",), False)])
def test_progress_is_told_unless_a_run_is_asked_to_be_silent(pytester, run, quiet, told):
    pytester.makepyfile(test_speaks=SPEAKS)
    assert told == ("waiting for a token" in run("-m", "rack_acceptance", "--rack-out=run", *quiet).text)


STANDS = """
import pytest
pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
def test_stands(rack_run):
    assert rack_run.progress.display.every_s == 30.0
    rack_run.progress.display.show("in flight 3")
    rack_run.progress.display.show("in flight 4")
    rack_run.progress.display.done()
"""


def test_a_log_gets_a_line_each_time_that_a_load_says_where_it_stands(pytester, run):
    pytester.makepyfile(test_stands=STANDS)
    told = [
        line
        for line in run("-m", "rack_acceptance", "--rack-out=run").text.splitlines()
        if "in flight" in line
    ]
    assert ["in flight 3", "in flight 4"] == [line.partition(" s  ")[2] for line in told]


SIMULATED = """
[target]
name = "x"
model = "m"
simulated = true
[[engine]]
name = "e"
launcher = "remote"
url = "http://127.0.0.1:9"
"""


def test_only_the_rack_that_a_run_makes_itself_has_a_scenario(pytester, run):
    pytester.makeconftest("")
    pytester.path.joinpath("rack.toml").write_text(SIMULATED)
    asked = ("--pyargs", "rackgate_suites", "--rack-stage=preflight", "--collect-only")
    own = run(*asked, "--rack-scenario=slow_card")
    assert "SIMULATED rack, scenario slow_card: never valid for sign-off" in own.text
    other = run(*asked, "--rack-target=rack.toml")
    assert "SIMULATED rack: never valid for sign-off" in other.text
