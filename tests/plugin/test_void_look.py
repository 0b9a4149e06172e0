"""A look in which the load generator itself was late says nothing of the rack: it is offered once more."""

import pytest

from rackgate.evidence.record import read_records

pytestmark = pytest.mark.slow

OFFERS = """
import pytest
from rackgate.nouns.load import Arrival, Load
from rackgate.stages.load_runs import LookRequest, offer_look

@pytest.mark.rack_acceptance
@pytest.mark.rack_stage("soak")
def test_offers(rack_run, rack_engines):
    load = Load(
        name="short", prompt_tokens=8, output_tokens=4, arrival=Arrival.POISSON,
        rate_per_s=40.0, duration_s=2.0, concurrency=64,
    )
    rack_run.instrument_fault = "slow"
    def has_begun(running):
        rack_run.instrument_fault = "INSTRUMENT_FAULT"
    endpoints = rack_engines.front(rack_run, "soak")
    request = LookRequest(stage="soak", load=load, endpoints=tuple(endpoints), label="x")
    offer_look(rack_run, rack_engines.target, request, has_begun)
"""


@pytest.mark.parametrize(("instrument_fault", "late"), [("", False), ("slow", True)])
def test_a_late_look_is_void_once_and_what_counts_is_the_other(pytester, run, instrument_fault, late):
    pytester.makeconftest("")
    pytester.makepyfile(test_offers=OFFERS.replace("INSTRUMENT_FAULT", instrument_fault))
    outcome = run("-m", "rack_acceptance", "--rack-target=sim:1x1", "--rack-out=run")
    records = list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))
    voids = [one["text"] for one in records if one["kind"] == "event" and one["event"] == "void_look"]
    assert 1 == len(voids), outcome.text
    assert voids[0].startswith("soak: load short, look 1 is void and offered again: the load generator")
    (counted,) = [one for one in records if one["kind"] == "load"]
    assert counted["samples"].endswith(".again.parquet")
    assert late == (counted["loop_lag_p99_ms"] > 10.0)
    kept = {path.name for path in (pytester.path / "run" / "evidence" / "samples").iterdir()}
    assert 2 == len(kept), "the void look stays in the evidence"


LOSES = OFFERS.replace(
    '    rack_run.instrument_fault = "slow"\n',
    '    rack_run.cards_lost = lambda: {"node1/gpu0": "the container sees no card [container_lost_gpu]"}\n',
).replace("INSTRUMENT_FAULT", "")


def test_a_load_after_which_an_engine_has_no_card_any_more_is_invalid(pytester, run):
    pytester.makeconftest("")
    pytester.makepyfile(test_offers=LOSES)
    outcome = run("-m", "rack_acceptance", "--rack-target=sim:1x1", "--rack-out=run")
    records = list(read_records(pytester.path / "run" / "evidence" / "records.jsonl"))
    told = [one["text"] for one in records if one["kind"] == "event" and one["event"] == "cards_lost"]
    assert ["node1/gpu0: the container sees no card [container_lost_gpu]"] == told, outcome.text
    (load,) = [one for one in records if one["kind"] == "load"]
    assert "an engine lost its cards" in load["detail"]
