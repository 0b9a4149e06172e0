"""Other people's tests beside an acceptance: async ones, plain ones, with any loop scope (case PYT-03)."""

from pathlib import Path

CASES = Path(__file__).parent.parent / "cases" / "inputs"
ASYNC = """
import asyncio, pytest
pytestmark = pytest.mark.rack_acceptance

@pytest.mark.asyncio
async def test_mine(rack_run):
    await asyncio.sleep(0)
    rack_run.event("mine", "ran")

def test_plain(rack_run):
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
"""


def test_an_async_test_runs_beside_the_checks(pytester, ladder):
    pytester.makepyfile(test_mine=ASYNC)
    outcome = ladder(stages=("preflight",))
    assert 0 == outcome.exit_code
    assert ["ran"] == [record["text"] for record in outcome.of("event")]


def test_a_session_wide_async_fixture_works_with_session_loops(pytester, ladder):
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = session\nasyncio_default_test_loop_scope = session\n"
    )
    text = (CASES / "PYT-03.py").read_text()
    pytester.makepyfile(test_three=text.replace("\n", "\npytestmark = pytest.mark.rack_acceptance\n", 1))
    assert 0 == ladder(stages=("preflight",)).exit_code


def test_our_fixtures_need_no_loop_of_pytest(pytester, ladder):
    pytester.makepyfile(test_mine=ASYNC)
    outcome = ladder("-p", "no:asyncio", "--deselect", "test_mine.py::test_mine", stages=("preflight",))
    assert 0 == outcome.exit_code


def test_a_plain_test_of_the_user_that_fails_is_not_accepted(pytester, ladder):
    pytester.makepyfile(
        test_mine="""
        import pytest
        @pytest.mark.rack_acceptance
        def test_mine(rack_run): assert rack_run.seed == 2
        """
    )
    outcome = ladder(stages=("preflight",))
    assert 1 == outcome.exit_code
    assert outcome.end["headline"].endswith("0 FAIL, 0 UNKNOWN; 1 other test failed")
