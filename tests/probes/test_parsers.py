"""What each tool prints, read strictly; everything else is no value, and says what was seen."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Scope
from rackgate.probes.outputs import read_text
from rackgate.probes.parsers import PARSERS
from rackgate.probes.probe import Answer, BadOutput, Probe, ProbedNode
from rackgate.probes.tools import tools

OUTPUTS = Path(__file__).parent / "outputs"
TWO = ProbedNode(name="node1", cards={0: "node1/gpu0", 1: "node1/gpu1"})
KNOWN = ("node1", "node1/gpu0", "node1/gpu1")


def read(tool, text, asked=TWO):
    """Return the answer to an output as a probe of this tool gets it."""
    probe = Probe(name="p", tool=tool, scope=Scope.NODE, values={})
    return read_text(probe, asked, text, KNOWN, Answer(node=asked.name, command="c"))


def values(tool, file, asked=TWO):
    answer = read(tool, (OUTPUTS / file).read_text(), asked)
    assert answer.reason is None, answer.detail
    return {(one.name, one.entity): one.value for one in answer.values}


def changed(file, change):
    found = json.loads((OUTPUTS / file).read_text())
    change(found)
    return json.dumps(found)


def test_every_tool_of_the_catalogue_has_its_reader():
    assert set(PARSERS) == {tool.parser for tool in tools().values()}


def test_dcgm_counts_the_tests_that_failed_of_each_card():
    assert {("not_passed", "node1/gpu0"): 0.0, ("not_passed", "node1/gpu1"): 1.0} == values(
        "dcgm", "dcgm.json"
    )


def test_dcgm_goes_by_the_serial_number_where_the_target_has_it():
    turned = ProbedNode(name="node1", cards=TWO.cards, serials={"1650001": 1, "1650002": 0})
    assert {("not_passed", "node1/gpu0"): 1.0, ("not_passed", "node1/gpu1"): 0.0} == values(
        "dcgm", "dcgm.json", turned
    )


def _all_pass(found):
    for category in found["DCGM Diagnostic"]["test_categories"]:
        for test in category["tests"]:
            for one in test["results"]:
                one["status"] = "Pass"
            test["test_summary"]["status"] = "Pass"


def test_a_test_of_dcgm_that_was_skipped_is_no_pass():
    def skipped(found):
        _all_pass(found)
        found["DCGM Diagnostic"]["test_categories"][2]["tests"][0]["results"][2]["status"] = "Skip"

    first, second = read("dcgm", changed("dcgm.json", skipped)).values
    assert (0.0, None, Reason.ABSENT) == (first.value, second.value, second.reason)
    assert "skipped: pcie" in second.detail
    planned = ProbedNode(name="node1", cards=TWO.cards, may_skip=frozenset({"pcie"}))
    assert [0.0, 0.0] == [one.value for one in read("dcgm", changed("dcgm.json", skipped), planned).values]


@pytest.mark.parametrize(("status", "value"), [("Fail", 1.0), ("Warn", 1.0), ("Skip", None)])
def test_what_failed_or_was_skipped_on_no_card_by_itself_counts_for_every_card(status, value):
    def whole(found):
        _all_pass(found)
        test = found["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
        test["test_summary"] = {"status": status, "warnings": [{"warning": "CUDA library not found"}]}

    answer = read("dcgm", changed("dcgm.json", whole))
    assert [value, value] == [one.value for one in answer.values]
    assert all("software: CUDA library not found" in one.detail for one in answer.values)


def test_a_card_that_no_test_ran_on_has_no_value():
    def without(found):
        _all_pass(found)
        for category in found["DCGM Diagnostic"]["test_categories"]:
            for test in category["tests"]:
                test["results"] = [one for one in test["results"] if one["entity_id"] == 0]
                test["test_summary"]["status"] = "Pass"

    first, second = read("dcgm", changed("dcgm.json", without)).values
    assert (0.0, None, "no test ran on it") == (first.value, second.value, second.detail)


def test_a_test_of_dcgm_that_was_expected_and_did_not_run_leaves_no_value():
    asked = ProbedNode(name="node1", cards=TWO.cards, expects=("software", "memtest"))
    answer = read("dcgm", changed("dcgm.json", _all_pass), asked)
    assert [(None, "skipped: memtest did not run")] * 2 == [(one.value, one.detail) for one in answer.values]


def _only(name, status):
    def change(found):
        _all_pass(found)
        for category in found["DCGM Diagnostic"]["test_categories"]:
            category["tests"] = [test for test in category["tests"] if test["name"] == name]
            for test in category["tests"]:
                test["test_summary"] = {"status": status}
                for one in test["results"]:
                    one["status"] = status

    return change


def test_runs_of_dcgm_one_after_the_other_are_one_result_and_a_torn_one_is_none():
    asked = ProbedNode(name="node1", cards=TWO.cards, expects=("software", "memory"))
    first, second = (
        changed("dcgm.json", _only("software", "Pass")),
        changed("dcgm.json", _only("memory", "Fail")),
    )
    both = read("dcgm", f"{first}\n{second}\n", asked)
    assert [1.0, 1.0] == [one.value for one in both.values]
    assert {2} == {one.count for one in both.values}
    assert {None} == {one.value for one in read("dcgm", first, asked).values}
    assert () == read("dcgm", f"{first}\n{second[:-9]}", asked).values
    assert () == read("dcgm", f"{first}\nSegmentation fault\n{second}", asked).values


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda found: found["metadata"].update(version="5.0.0"), "written by DCGM 5.0.0"),
        (lambda found: found.pop("metadata"), "metadata is missing"),
        (lambda found: found["DCGM Diagnostic"].update(runtime_error="no host engine"), "no host engine"),
        (
            lambda found: found["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][0].update(
                status="Fine"
            ),
            "status 'Fine'",
        ),
    ],
)
def test_dcgm_of_another_shape_is_no_value(change, seen):
    answer = read("dcgm", changed("dcgm.json", change))
    assert ((), Reason.UNSUPPORTED) == (answer.values, answer.reason)
    assert seen in answer.detail


def test_nvbandwidth_gives_each_card_its_copies_and_the_worst_of_its_peers():
    assert {
        ("h2d", "node1/gpu0"): 55.21,
        ("h2d", "node1/gpu1"): 54.98,
        ("d2h", "node1/gpu0"): 55.02,
        ("d2h", "node1/gpu1"): 12.7,
        ("d2d", "node1/gpu0"): 371.4,
        ("d2d", "node1/gpu1"): 371.4,
        ("d2d_share", "node1/gpu0"): pytest.approx(371.4 / 380.8),
        ("d2d_share", "node1/gpu1"): pytest.approx(371.4 / 380.8),
    } == values("nvbandwidth", "nvbandwidth.json")


def test_a_copy_test_that_was_waived_is_no_value():
    def waived(found):
        case = found["nvbandwidth"]["testcases"][2]
        found["nvbandwidth"]["testcases"][2] = {"name": case["name"], "status": "Waived"}

    said = read("nvbandwidth", changed("nvbandwidth.json", waived)).values
    assert {None} == {one.value for one in said if one.name == "d2d"}
    assert {"Waived"} == {one.detail.split()[-1] for one in said if one.name == "d2d"}


def test_a_device_that_is_not_listed_makes_all_of_them_doubtful():
    asked = ProbedNode(name="node1", cards={index: f"node1/gpu{index}" for index in range(8)})
    answer = read("nvbandwidth", (OUTPUTS / "nvbandwidth.json").read_text(), asked)
    assert "lists 2 devices, the target declares 8" in answer.detail


def test_the_largest_size_is_judged_and_never_the_average():
    assert {("wrong", "node1"): 0.0, ("busbw", "node1"): 476.7} == values("nccl", "nccl.json")
    assert {("wrong", "node1"): 2.0, ("busbw", "node1"): 476.72} == values("nccl", "nccl_table.txt")


def test_a_collective_below_16_gib_or_on_fewer_cards_is_no_value():
    small = read("nccl", changed("nccl.json", lambda found: found["results"].pop())).values
    assert {"wrong": 0.0, "busbw": None} == {one.name: one.value for one in small}
    eight = ProbedNode(name="node1", cards={index: f"node1/gpu{index}" for index in range(8)})
    assert "2 ranks" in read("nccl", (OUTPUTS / "nccl.json").read_text(), eight).detail


def test_perftest_gives_bandwidth_or_latency():
    assert {("bandwidth", "node1"): 391.87} == values("perftest", "ib_write_bw.json")
    assert {("latency", "node1"): 2.14} == values("perftest", "ib_write_lat.json")
    assert (
        "nothing was sent"
        in read("perftest", (OUTPUTS / "ib_write_bw.json").read_text().replace("391.87", "0")).detail
    )


def test_fio_gives_what_was_read_and_no_value_for_a_job_with_an_error():
    assert {("read", "node1"): pytest.approx(1.220370669)} == values("fio", "fio.json")
    broken = changed("fio.json", lambda found: found["jobs"][0].update(error=5))
    assert "ended with error 5" in read("fio", broken).detail


def test_rvs_counts_results_that_did_not_pass_and_needs_one_for_each_card():
    assert {("not_passed", "node1/gpu0"): 0.0, ("not_passed", "node1/gpu1"): 1.0} == values("rvs", "rvs.json")
    for words in ("", "Killed", "sudo: a password is required", "rvs: command not found", "{}"):
        assert read("rvs", words).reason is Reason.UNSUPPORTED


def test_agfhc_needs_its_own_word_of_success():
    assert {("not_passed", "node1"): 0.0} == values("agfhc", "agfhc.txt")
    assert read("agfhc", "Killed").reason is Reason.UNSUPPORTED
    assert 1.0 == read("agfhc", "return code AGFHC_FAIL").values[0].value


def test_a_sites_own_output_says_values_and_reasons():
    first, second = read("site", (OUTPUTS / "site.json").read_text()).values
    assert ("node1/gpu0", 3.5, 4, "ran 4 times; 4 files") == (
        first.entity,
        first.value,
        first.count,
        first.detail,
    )
    assert ("node1/gpu1", Reason.TIMEOUT, "the card is stuck") == (
        second.entity,
        second.reason,
        second.detail,
    )


def _one(**changes):
    value = {"name": "a", "entity": "node", "value": 1, "unit": "s", **changes}
    return json.dumps({"version": 1, "complete": True, "values": [value]})


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"version": 1, "complete": false, "values": []}', "complete"),
        ('{"version": 1, "values": []}', "complete: missing"),
        ('{"version": 2, "complete": true, "values": []}', "version"),
        ('{"version": 1, "complete": true, "values": []}', "values"),
        (_one(entity="gpu7"), "gpu7"),
        (_one(value=float("nan")), "NaN"),
        (_one(value=None), "exactly one"),
        (_one(reason="timeout"), "exactly one"),
        (_one().replace(', "unit": "s"', ""), "unit: missing"),
        (_one(colour="red"), "colour: unknown key"),
        ('{"version": 1, "version": 1}', "stands twice"),
        ("[1]", "no JSON"),
        ('{"version": 1} done', "words after its JSON"),
        ("all good", "'all good'"),
    ],
)
def test_a_sites_output_that_breaks_the_schema_is_no_value(text, seen):
    answer = read("site", text)
    assert ((), Reason.UNSUPPORTED) == (answer.values, answer.reason)
    assert seen in answer.detail


JSON_FILES = [
    ("dcgm", "dcgm.json"),
    ("nvbandwidth", "nvbandwidth.json"),
    ("nccl", "nccl.json"),
    ("perftest", "ib_write_bw.json"),
    ("perftest", "ib_write_lat.json"),
    ("fio", "fio.json"),
    ("rvs", "rvs.json"),
    ("site", "site.json"),
]


@pytest.mark.parametrize(("tool", "file"), JSON_FILES)
@settings(max_examples=40)
@given(share=st.floats(0, 1, exclude_max=True))
def test_an_output_that_breaks_off_is_never_a_value(tool, file, share):
    whole = (OUTPUTS / file).read_text().rstrip()
    answer = read(tool, whole[: int(len(whole) * share)])
    assert ((), Reason.UNSUPPORTED) == (answer.values, answer.reason)


@given(tool=st.sampled_from(sorted(PARSERS)), words=st.text() | st.text('{}[]:,"nul1. \n'))
def test_other_words_are_never_a_value(tool, words):
    assert () == read(tool, words).values


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(("tool", "file"), JSON_FILES)
@settings(max_examples=60)
@given(data=st.data())
def test_an_output_with_something_else_in_one_place_never_ends_the_run(tool, file, data):
    found = json.loads((OUTPUTS / file).read_text())
    at = found
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not (isinstance(at[key], dict | list) and at[key]) or data.draw(st.booleans()):
            at[key] = data.draw(json_values)
            break
        at = at[key]
    answer = read(tool, json.dumps(found))
    assert bool(answer.values) != bool(answer.reason)


def test_a_bad_output_says_so_by_itself():
    with pytest.raises(BadOutput, match="no JSON"):
        PARSERS["fio"]("fio: No such file or directory", TWO)
