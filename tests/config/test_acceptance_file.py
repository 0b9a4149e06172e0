"""The acceptance file: what it may say, what it may not, and how it lies over the shipped rows."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackgate.nouns.slo import Op, Severity

LOAD = {"prompt_tokens": 8, "output_tokens": 8, "looks": [105, 210, 420]}
ROW = {
    "id": "single_card.ttft",
    "metric": "ttft_ms",
    "op": "<=",
    "bound": 500.0,
    "unit": "ms",
    "scope": "card",
    "source": "contract",
}


def one(**changes):
    return {"load": {"interactive": LOAD}, "slo": [{**ROW, **changes}]}


def without(*keys):
    return {"slo": [{key: value for key, value in ROW.items() if key not in keys}]}


def test_a_good_row_becomes_a_noun(acceptance):
    agreed = acceptance(one(load="interactive", statistic="p95", applies_to={"sku": ["H200"]}))
    (row,) = agreed.slos
    assert ("single_card", Op.AT_MOST, 500.0, "interactive", {"sku": ("H200",)}) == (
        row.stage,
        row.op,
        row.bound,
        row.load,
        row.applies_to,
    )
    assert (105, 210, 420) == agreed.loads["interactive"].looks


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"boundd": 3}, ".boundd: unknown key; did you mean 'bound'?"),
        ({"bound": "500"}, ".bound: Input should be a valid number (given: '500')"),
        ({"bound": True}, ".bound: Input should be a valid number (given: True)"),
        ({"bound": float("nan")}, ".bound: Input should be a finite number (given: nan)"),
        ({"bound": float("inf")}, ".bound: Input should be a finite number (given: inf)"),
        ({"bound": -3.0}, ".bound: -3 ms cannot be negative"),
        ({"op": "<"}, ".op: Input should be '<=', '>=' or '==' (given: '<')"),
        ({"unit": "s"}, ".unit: 's', but ttft_ms is measured in 'ms'"),
        ({"metric": "tfft_ms"}, ".metric: no metric 'tfft_ms'; did you mean 'ttft_ms'?"),
        ({"scope": "crad"}, ".scope: Input should be 'rack', 'node', 'card', 'engine', 'pool' or 'pair'"),
        ({"severity": "fatal"}, ".severity: Input should be 'blocker' or 'warn' (given: 'fatal')"),
        ({"min_count": "3"}, ".min_count: Input should be a valid integer (given: '3')"),
        ({"min_count": 0}, ".min_count: Input should be greater than or equal to 1 (given: 0)"),
        ({"profiles": ["smok"]}, ".profiles[0]: String should match pattern"),
        ({"load": "interactiv"}, ".load: no load 'interactiv'; did you mean 'interactive'?"),
        (
            {"id": "single_crad.ttft"},
            "slo 'single_crad.ttft': no stage 'single_crad'; did you mean 'single_card'?",
        ),
        ({"id": 7}, "slo[0].id: must be a string (given: 7)"),
        ({"applies_to": {"modle": ["m"]}}, ".applies_to.modle: unknown key; did you mean 'model'?"),
        ({"source": ""}, ".source: String should have at least 1 character (given: '')"),
    ],
)
def test_a_bad_row_is_told_with_file_key_and_what_would_be_right(wrong, changes, problem):
    (found,) = wrong(one(**changes))
    where = "" if problem.startswith("slo") else "slo 'single_card.ttft'"
    assert found.startswith(f"file1.toml: {where}{problem}")


@pytest.mark.parametrize("key", ["metric", "op", "bound", "unit", "scope", "source"])
def test_a_missing_key_is_named(wrong, key):
    assert [f"file1.toml: slo 'single_card.ttft'.{key}: missing"] == wrong(without(key))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"prompt_tokens": "8"},
            "load.interactive.prompt_tokens: Input should be a valid integer (given: '8')",
        ),
        ({"prompt_tokens": 8.5}, "load.interactive.prompt_tokens: Input should be a valid integer"),
        ({"duration_s": -3.0}, "load.interactive.duration_s: Input should be greater than 0 (given: -3.0)"),
        ({"duration_ms": 3.0}, "load.interactive.duration_ms: unknown key; did you mean 'duration_s'?"),
        ({"looks": [1, 2, 3, 4]}, "load.interactive.looks: List should have at most 3 items"),
        ({"looks": [0]}, "load.interactive.looks[0]: Input should be greater than or equal to 1"),
        ({"arrival": "burst"}, "load.interactive.arrival: Input should be 'closed', 'constant', 'poisson', "),
        ({"limits": {"stall": 3.0}}, "load.interactive.limits.stall: unknown key; did you mean 'stall_s'?"),
        ({"limits": {"total_s": -1.0}}, "load.interactive.limits.total_s: Input should be greater than 0"),
        ({"workload": "chat"}, "load.interactive.workload: String should match pattern"),
    ],
)
def test_a_bad_load_is_told_with_file_key_and_what_would_be_right(wrong, changes, problem):
    (found,) = wrong({"load": {"interactive": {**LOAD, **changes}}})
    assert found.startswith(f"file1.toml: {problem}")


@pytest.mark.parametrize(
    ("statistic", "looks", "engines", "needed", "planned"),
    [
        ("p99", [2], 1, 299, 2),
        ("p99", [105, 210, 406], 1, 408, 406),
        ("p95", [58], 1, 59, 58),
        ("p999", [420], 1, 2995, 420),
    ],
)
def test_a_percentile_that_the_load_cannot_decide_is_refused(
    wrong, statistic, looks, engines, needed, planned
):
    data = {
        "load": {"few": {**LOAD, "looks": looks}},
        "slo": [{**ROW, "load": "few", "statistic": statistic}],
    }
    (found,) = wrong(data, engines=engines)
    assert (
        f"file1.toml: slo 'single_card.ttft'.statistic: {statistic} needs {needed} requests to be decided,"
        f" load 'few' plans {planned}"
    ) == found


def test_a_pool_decides_with_the_requests_of_all_its_engines(wrong):
    data = {
        "load": {"few": {**LOAD, "looks": [100]}},
        "slo": [{**ROW, "load": "few", "statistic": "p99", "scope": "pool"}],
    }
    assert [] == wrong(data, engines=3)
    assert 1 == len(wrong(data, engines=2))
    assert [] == wrong(data, engines=None)


def test_more_samples_asked_than_planned_is_refused(wrong):
    data = {"load": {"few": {**LOAD, "looks": [20]}}, "slo": [{**ROW, "load": "few", "min_count": 100}]}
    assert [
        "file1.toml: slo 'single_card.ttft'.min_count needs 100 requests to be decided, load 'few' plans 20"
    ] == wrong(data)


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        ({"looks": [200, 100]}, "closed load 'l' needs looks that grow"),
        ({"looks": []}, "closed load 'l' needs looks that grow"),
        ({"arrival": "poisson", "rate_per_s": 3.0}, "open load 'l' needs rate_per_s and duration_s"),
    ],
)
def test_a_load_without_an_end_is_refused(wrong, load, problem):
    (found,) = wrong({"load": {"l": {**LOAD, **load}}, "slo": [{**ROW, "load": "l"}]})
    assert problem in found


@pytest.mark.parametrize(("low", "high"), [(">=", "<="), (">=", "=="), ("==", "<=")])
def test_a_minimum_above_a_maximum_is_refused(wrong, low, high):
    rows = [
        {**ROW, "id": "single_card.low", "op": low, "bound": 600},
        {**ROW, "id": "single_card.high", "op": high},
    ]
    (found,) = wrong({"slo": rows})
    assert (
        f"file1.toml: slo 'single_card.low' asks {low} 600 ms, but 'single_card.high' asks {high} 500 ms"
        == found
    )


def test_a_range_is_no_contradiction(wrong):
    rows = [{**ROW, "id": "single_card.low", "op": ">=", "bound": 400}, {**ROW, "id": "single_card.high"}]
    assert [] == wrong({"slo": rows})


def test_one_id_twice_in_a_file_is_refused(wrong):
    assert ["file1.toml: slo 'single_card.ttft' stands twice in this file"] == wrong({"slo": [ROW, ROW]})


@pytest.mark.parametrize("reason", [{}, {"reason": ""}, {"reason": "  "}])
def test_an_override_without_a_reason_is_refused(wrong, reason):
    problems = wrong({"slo": [ROW]}, {"slo": [{"id": ROW["id"], "bound": 600.0, **reason}]})
    assert ["file2.toml: slo 'single_card.ttft': overrides file1.toml without a reason"] == problems


def test_an_override_changes_what_it_names_and_is_kept_with_its_reason(acceptance):
    change = {"id": ROW["id"], "bound": 600.0, "severity": "warn", "reason": "agreed in May"}
    agreed = acceptance({"slo": [ROW]}, {"slo": [change]})
    (row,), (override,) = agreed.slos, agreed.overrides
    source = "changed by file2.toml: agreed in May; before: contract (<= 500 ms)"
    assert (600.0, Severity.WARN, source) == (row.bound, row.severity, row.source)
    assert ("single_card.ttft", ("bound", "severity"), "agreed in May", "file2.toml") == (
        override.id,
        override.fields,
        override.reason,
        override.file,
    )


def test_a_load_is_overridden_the_same_way(wrong, acceptance):
    change = {"load": {"interactive": {"looks": [408], "reason": "short"}}}
    assert (408,) == acceptance({"load": {"interactive": LOAD}}, change).loads["interactive"].looks
    del change["load"]["interactive"]["reason"]
    assert ["file2.toml: load.interactive: overrides file1.toml without a reason"] == wrong(
        {"load": {"interactive": LOAD}}, change
    )


def test_a_row_can_be_disabled_with_a_reason(acceptance):
    change = {"slo": [{"id": ROW["id"], "disabled": True, "reason": "not on this rack"}]}
    agreed = acceptance({"slo": [ROW]}, change)
    assert ((), "not on this rack") == (agreed.slos, agreed.overrides[0].reason)


def test_another_bound_is_another_digest(acceptance):
    assert acceptance(one()).digest == acceptance(one()).digest
    assert acceptance(one()).digest != acceptance(one(bound=501.0)).digest


def test_all_problems_of_all_files_are_told_at_once(wrong):
    bad = {
        "slo": [{**ROW, "bound": "x", "sorce": 1}],
        "load": {"l": {"prompt_tokens": 0, "output_tokens": 1}},
    }
    assert 6 == len(wrong(bad, {"slos": [], "slo": [{"bound": 3}]}, {"slo": [{"bound": 3}]}))


def test_a_changed_row_tells_its_own_source_or_who_changed_what(acceptance):
    first = {"id": ROW["id"], "bound": 600.0, "reason": "smoke"}
    second = {"id": ROW["id"], "bound": 700.0, "reason": "site"}
    sources = [
        acceptance({"slo": [ROW]}, {"slo": [{**first, **change}]}).slos[0].source
        for change in ({}, {"source": "contract 4.2"}, {"bound": ROW["bound"], "hint": "look"})
    ]
    assert [
        "changed by file2.toml: smoke; before: contract (<= 500 ms)",
        "contract 4.2",
        "changed by file2.toml: smoke; before: contract (<= 500 ms)",
    ] == sources
    hint = {"id": ROW["id"], "hint": "look there", "reason": "clearer"}
    assert "contract" == acceptance({"slo": [ROW]}, {"slo": [hint]}).slos[0].source
    twice = acceptance({"slo": [ROW]}, {"slo": [first]}, {"slo": [second]}).slos[0]
    assert (
        "changed by file3.toml: site; before: changed by file2.toml: smoke; before: contract (<= 500 ms)"
        " (<= 600 ms)"
    ) == twice.source


def test_contradictions_are_told_with_the_mistakes_of_form(wrong):
    bad = {"bound": "x", "load": "nowhere", "metric": "tfft_ms", "applies_to": {"modle": ["m"]}}
    assert [
        "file1.toml: slo 'single_card.ttft'.bound: Input should be a valid number (given: 'x')",
        "file1.toml: slo 'single_card.ttft'.metric: no metric 'tfft_ms'; did you mean 'ttft_ms'?",
        "file1.toml: slo 'single_card.ttft'.load: no load 'nowhere'; valid: interactive",
        "file1.toml: slo 'single_card.ttft'.applies_to.modle: unknown key; did you mean 'model'?",
    ] == wrong(one(**bad))


def test_a_load_that_cannot_be_read_is_not_called_unknown(wrong):
    data = {"load": {"interactive": {**LOAD, "looks": "x"}}, "slo": [{**ROW, "load": "interactive"}]}
    (found,) = wrong(data)
    assert found.startswith("file1.toml: load.interactive.looks: ")


TTFT = {"metric": "ttft_ms", "unit": "ms", "load": "interactive"}
HOT = {"metric": "temperature_c", "unit": "°C", "scope": "card", "load": "interactive"}
RATE = {"metric": "error_rate", "unit": "ratio", "load": "interactive"}
FAULTS = {"metric": "detection_s", "unit": "s", "scope": "rack", "load": "interactive"}
OF = "p50 or p90 or p95 or p99 or p999 or max or mean"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (TTFT, f"statistic: 'value', but ttft_ms is judged by {OF}"),
        (
            {**TTFT, "statistic": "mean"},
            "statistic: 'mean': an average alone never decides: ask a percentile, or set severity = \"warn\"",
        ),
        ({**HOT, "statistic": "p99"}, "statistic: 'p99', but temperature_c is judged by value"),
        ({**RATE, "window": "fault"}, "window: 'fault', but error_rate is measured over 'load'"),
        (FAULTS, "window: 'load', but detection_s is measured over 'fault'"),
        (
            {**RATE, "load": None},
            "load: missing: error_rate is computed from the requests of a load",
        ),
    ],
)
def test_a_row_that_its_metric_can_never_answer_is_refused(wrong_row, row, problem):
    asked = {name: value for name, value in row.items() if value is not None}
    assert [problem] == wrong_row(**asked)


def test_what_a_metric_has_is_taken(wrong_row):
    assert [] == wrong_row(**TTFT, statistic="p95")
    assert [] == wrong_row(**TTFT, statistic="mean", severity="warn")
    assert [] == wrong_row(**HOT)
    assert [] == wrong_row(**FAULTS, window="fault")


@pytest.mark.parametrize(
    ("scope", "load", "nodes", "engines", "gives"),
    [
        ("engine", "interactive", 2, 4, 400),
        ("node", "interactive", 2, 4, 1600),
        ("rack", "interactive", 2, 4, 3200),
        ("pool", "interactive", 2, 4, 3200),
        ("rack", "calls", 2, 4, 400),
        ("pool", "calls", 2, 4, 400),
        ("node", "calls", 2, 4, 200),
        ("engine", "calls", 2, 4, 50),
    ],
)
def test_requests_through_one_gateway_are_shared_and_not_multiplied(
    wrong_row, rack, scope, load, nodes, engines, gives
):
    target = rack(nodes=nodes, engines=engines)
    stage = "single_card" if load == "interactive" else "cross_node"
    row = {**TTFT, "id": f"{stage}.mine", "scope": scope, "load": load, "statistic": "p50"}
    assert [] == wrong_row(target, looks=[400], min_count=gives, **row)
    (found,) = wrong_row(target, looks=[400], min_count=gives + 1, **row)
    assert f"min_count needs {gives + 1} requests to be decided" in found


def test_without_a_gateway_the_same_load_reaches_each_engine(wrong_row, rack):
    row = {**TTFT, "id": "soak.mine", "scope": "rack", "load": "calls", "statistic": "p50"}
    assert [] == wrong_row(rack(engines=4, gateway=False), looks=[400], min_count=1600, **row)


@pytest.mark.parametrize(("looks", "needed"), [([1], 299), ([1, 2], 408), ([1, 2, 3], 408)])
def test_the_samples_needed_follow_the_looks_that_judging_counts(wrong_row, looks, needed):
    (found,) = wrong_row(None, looks=looks, **TTFT, statistic="p99")
    assert (
        f"statistic: p99 needs {needed} requests to be decided, load 'interactive' plans {looks[-1]}" == found
    )


def test_a_row_that_is_not_asked_of_this_target_needs_no_samples(wrong_row, rack):
    row = {**TTFT, "id": "cross_node.mine", "scope": "node", "load": "calls", "statistic": "p99"}
    assert 1 == len(wrong_row(rack(nodes=2, engines=1), looks=[400], **row))
    assert [] == wrong_row(rack(nodes=1, engines=2), looks=[400], **row)


@pytest.mark.parametrize("data", [{"slo": 3}, {"slo": [3]}, {"load": []}, {"load": {"l": 3}}, {"lod": {}}])
def test_a_file_of_another_shape_is_told(wrong, data):
    assert 1 == len(wrong(data))


SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.datetimes(),
    st.sampled_from(["<=", "rack", "ms", "ttft_ms"]),
)
KEYS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            "id",
            "op",
            "bound",
            "unit",
            "scope",
            "source",
            "metric",
            "load",
            "slo",
            "reason",
            "looks",
            "limits",
            "applies_to",
            "arrival",
        ]
    ),
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLE = st.dictionaries(KEYS, ANY, max_size=6)
ROWS = st.lists(
    st.builds(lambda base, extra: {**base, **extra}, st.sampled_from([{}, ROW]), TABLE), max_size=3
)
FILES = st.one_of(
    TABLE,
    st.fixed_dictionaries({"slo": ROWS, "load": st.dictionaries(st.text(max_size=4), TABLE, max_size=2)}),
)


@given(FILES, FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_any_table_is_accepted_or_refused_in_words(wrong, first, second):
    assert all(problem.startswith("file") for problem in wrong(first, second))
