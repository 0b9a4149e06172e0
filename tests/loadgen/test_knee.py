"""The knee is found where it is, never by a probe that says nothing."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.loadgen.knee import KneeOutcome, Look, find_knee
from rackgate.nouns.verdict import Verdict


def endpoint(knee, *, requests=400, aborted_above=None, seed=1):
    """An endpoint whose requests are all good up to its knee, and half of them beyond."""
    chance = random.Random(seed)

    def offer(rate, _look):
        if aborted_above is not None and rate > aborted_above:
            return Look(good=0, attempted=0, aborted="the load generator was late")
        share = 0.999 if rate <= knee else 0.5
        return Look(good=sum(chance.random() < share for _ in range(requests)), attempted=requests)

    return offer


@settings(max_examples=40)
@given(knee=st.floats(2.0, 900.0), first=st.floats(1.0, 1000.0), seed=st.integers(0, 3))
def test_the_knee_lies_between_the_two_rates_that_are_told(knee, first, seed):
    found = find_knee(endpoint(knee, seed=seed), first_per_s=first, most_per_s=1000.0, least_per_s=0.5)
    assert found.found is KneeOutcome.KNEE
    assert found.rate_per_s <= knee < found.too_high_per_s <= found.rate_per_s * 1.1 + 1e-9


def test_an_endpoint_that_keeps_up_with_everything_is_said_to_do_at_least_that():
    found = find_knee(endpoint(1e9), first_per_s=10.0, most_per_s=55.0)
    assert (KneeOutcome.AT_LEAST, 55.0, None) == (found.found, found.rate_per_s, found.too_high_per_s)
    assert [10.0, 20.0, 40.0, 55.0] == [probe.rate_per_s for probe in found.probes]


def test_an_endpoint_that_never_keeps_the_bounds_has_no_knee():
    found = find_knee(endpoint(0.0), first_per_s=8.0, most_per_s=100.0, least_per_s=1.0)
    assert (KneeOutcome.NONE, None) == (found.found, found.rate_per_s)
    assert [8.0, 4.0, 2.0, 1.0] == [probe.rate_per_s for probe in found.probes]


def test_an_aborted_probe_is_no_bound():
    found = find_knee(endpoint(1e9, aborted_above=30.0), first_per_s=10.0, most_per_s=1000.0)
    assert (KneeOutcome.UNRESOLVED, 20.0, None) == (found.found, found.rate_per_s, found.too_high_per_s)
    assert "at 40/s: the load generator was late" == found.detail


def test_a_share_on_the_bound_is_looked_at_three_times_and_then_unresolved():
    looks = []
    found = find_knee(
        lambda _rate, look: (looks.append(look), Look(good=95, attempted=100))[1],
        first_per_s=5.0,
        most_per_s=9.0,
    )
    assert ([0, 1, 2], KneeOutcome.UNRESOLVED) == (looks, found.found)
    assert Verdict.UNKNOWN is found.probes[0].verdict
    assert (285, 300) == (found.probes[0].good, found.probes[0].attempted)


@pytest.mark.parametrize(
    "wrong", [{"first_per_s": 0.0}, {"share": 1.0}, {"resolution": 0.0}, {"most_per_s": 1.0}]
)
def test_a_search_that_cannot_be_made_is_refused(wrong):
    with pytest.raises(ValueError, match="are needed"):
        find_knee(endpoint(5), **{"first_per_s": 5.0, "most_per_s": 10.0, **wrong})
