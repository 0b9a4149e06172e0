"""`rack_fault` on a rack on paper: what is refused before anything is hurt, and what a failed step leaves."""

import pytest

pytestmark = pytest.mark.slow

FAULTS = """
class Broken:
    kind, entity = "broken", "node1/gpu0"
    def __init__(self, engine, deadline_s):
        self.deadline_s = deadline_s
    def inject(self):
        if self.deadline_s < 1:
            raise OSError("no such wire")
    def prove(self):
        return False
    def heal(self):
        pass
    def prove_healed(self):
        return True

def pytest_rack_faults(config, register):
    register("broken", Broken)
"""

TEST = """
import pytest
from rackgate.nouns.engine import Engine

pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("fault_injection")]

def test_mine(rack_run, rack_fault):
    engine = Engine(spec=rack_run.target.engines[0], url="http://127.0.0.1:9")
    with rack_fault({arguments}):
        {body}
"""


@pytest.fixture
def broken(pytester, extend, run):
    """Run a test that injects with these arguments, on a rack that has the fault `broken`."""

    def broken(arguments, body="pass"):
        extend(FAULTS)
        pytester.makepyfile(TEST.format(arguments=arguments, body=body))
        return run("-m", "rack_acceptance", "--rack-out", "run")

    return broken


def test_a_kind_that_nobody_registered_is_refused_with_those_that_are(broken):
    outcome = broken("'unplug', engine")
    assert "UnknownFault: no fault 'unplug' is registered; there are: broken, kill" in outcome.text
    assert (1, []) == (outcome.exit_code, outcome.of("fault"))


def test_an_engine_that_cannot_be_killed_is_refused_before_anything_is_recorded(broken):
    outcome = broken("'kill', engine")
    assert "TypeError: engine node1-gpu0 (remote) cannot be killed from here" in outcome.text
    assert (1, []) == (outcome.exit_code, outcome.of("fault"))


def test_a_rack_whose_owner_allows_nothing_to_be_broken_is_not_touched(pytester, broken):
    text = pytester.path.joinpath("conftest.py").read_text()
    pytester.makeconftest(text.replace('may_break=("engine",)', "may_break=()"))
    outcome = broken("'broken', engine")
    assert "NotAllowed: target paper does not allow engines to be broken" in outcome.text
    assert (1, []) == (outcome.exit_code, outcome.of("fault"))


@pytest.mark.parametrize(
    ("deadline_s", "steps"),
    [
        (0.5, [("inject", "inject: OSError: no such wire"), ("heal", ""), ("prove_healed", "")]),
        (2.0, [("inject", ""), ("prove", "prove not seen"), ("heal", ""), ("prove_healed", "")]),
    ],
)
def test_each_moment_is_on_record_and_it_is_healed_though_the_test_fails(broken, deadline_s, steps):
    outcome = broken(f"'broken', engine, deadline_s={deadline_s}", "raise ValueError('mine')")
    moments = [(one["moment"], one["detail"]) for one in outcome.of("fault")]
    assert [("intend", ""), *steps] == moments
    assert "ValueError: mine" in outcome.text
    assert 1 == outcome.exit_code
