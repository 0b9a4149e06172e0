"""What an item, the terminal, JUnit, the records and the exit code say of each verdict."""

import re

import pytest

pytestmark = pytest.mark.slow

CARD = "single_card.ttft_p95 @ node1/gpu1"
P95 = {
    "value": 480.25,
    "bounds": {"lower": 471.0, "upper": 492.5, "confidence": 0.98},
    "detail": "max 501 ms",
}


def test_a_run_whose_checks_all_hold_is_accepted_once_nothing_is_left_out(ladder):
    stages = ("selfcheck", "preflight", "single_card", "two_card", "cross_node")
    outcome = ladder("--rack-stage", ",".join(stages), stages=stages)
    assert 0 == outcome.exit_code
    met = outcome.end["counts"]["PASS"]
    assert f"PARTIAL RUN, nothing to certify: {met} checks asked and met" == outcome.end["headline"]
    everything = (*stages, "soak", "fault_injection", "batch_retry")
    whole = ladder("--rack-stage", "", stages=everything, out="whole")
    assert (0, True, False) == (whole.exit_code, whole.end["accepted"], whole.end["partial"])
    met, asked = whole.end["counts"]["PASS"], len(whole.of("plan")[0]["checks"])
    scope = f"ACCEPTED WITHIN SCOPE operator, {met} of {asked} rows"  # a rack on paper has no chassis
    assert f"{scope}: {met} checks met" == whole.end["headline"]
    assert list(everything) == [record["stage"] for record in whole.of("stage") if record["phase"] == "begin"]


def test_a_fail_tells_value_bounds_limit_count_source_and_next_step(ladder):
    outcome = ladder(stages=("single_card",), values={CARD: P95})
    assert 1 == outcome.exit_code
    failure = outcome.cases["rackgate.single_card", CARD].find("failure")
    assert f"FAIL {CARD}: 480 ms, agreed <= 450 ms" == failure.get("message").split("\n")[0]
    assert failure.text.startswith(f"FAIL {CARD}: ")
    for part in (
        "ttft_ms P95 = 480 ms (bounds 471 .. 492 ms, each one-sided at 98.0%)",
        "n = 5000, load interactive",
        "<= 450 ms; source: [ours] inside the P99 bound of MLPerf",
        "seen    max 501 ms",
        "next    Slow prefill or queueing.",
    ):
        assert part in failure.text
    assert re.search(
        r"^FAILED test_single_card.py::test_slo\[.*\] - FAIL single_card.ttft_p95", outcome.text, re.MULTILINE
    )
    (record,) = (record for record in outcome.of("verdict") if record["check"] == CARD)
    assert ("FAIL", 480.25, "ms", 5000) == tuple(record[key] for key in ("verdict", "value", "unit", "count"))
    assert {"lower": 471.0, "upper": 492.5, "confidence": 0.98} == record["bounds"]


def test_an_unknown_begins_with_its_word_in_terminal_and_junit(ladder):
    values = {CARD: {"reason": "blank", "detail": "DCGM blank value"}}
    outcome = ladder(stages=("single_card",), values=values)
    assert 1 == outcome.exit_code
    failure = outcome.cases["rackgate.single_card", CARD].find("failure")
    assert (
        f"UNKNOWN {CARD}: blank (DCGM blank value), agreed <= 450 ms" == failure.get("message").split("\n")[0]
    )
    summary = r"^UNKNOWN test_single_card.py::test_slo\[.*\] - UNKNOWN single_card.ttft_p95"
    assert re.search(summary, outcome.text, re.MULTILINE)
    assert outcome.end["headline"].startswith("NOT ACCEPTED: 3 of 4 cards qualified; 0 FAIL, 1 UNKNOWN")
    assert "?" in outcome.line("test_single_card.py")


def test_verbose_output_shows_the_verdicts_in_words(ladder):
    values = {
        "single_card.power_peak @ node1/gpu0": {"reason": "blank", "detail": ""},
        "single_card.power_peak @ node1/gpu1": 9.0,
    }
    text = ladder("-v", stages=("single_card",), values=values).text
    assert "single_card.power_peak @ node1/gpu0] UNKNOWN" in text
    assert "single_card.power_peak @ node1/gpu1] FAILED" in text


def test_a_warning_passes_and_is_shown(pytester, ladder):
    pytester.path.joinpath("site.toml").write_text(
        '[[slo]]\nid = "single_card.jitter"\nseverity = "warn"\nreason = "agreed in May"\n'
    )
    row = {"single_card.jitter @ node2/gpu0": 99.0}
    outcome = ladder("--rack-slo", "site.toml", "-v", stages=("single_card",), values=row)
    assert 0 == outcome.exit_code
    assert "WARN" == outcome.verdicts["single_card.jitter @ node2/gpu0"]
    assert "single_card.jitter @ node2/gpu0] WARN" in outcome.text
    assert "WARN single_card.jitter @ node2/gpu0: 99 (WARN)" in outcome.text
    assert 1 == outcome.end["counts"]["WARN"]
    assert outcome.end["headline"].endswith("with 1 warning") or outcome.end["partial"]
    later = {
        one["entity"]: one["beside"]
        for one in outcome.of("verdict")
        if one["slo"] == "single_card.error_rate"
    }
    assert ["open warning: single_card.jitter @ node2/gpu0"] == later["node2/gpu0"]
    assert [] == later["node1/gpu0"]
    (override,) = outcome.of("run")[0]["acceptance"]["overrides"][-1:]
    assert ("single_card.jitter", ["severity"], "agreed in May") == tuple(
        override[key] for key in ("id", "fields", "reason")
    )


def test_a_new_row_of_the_site_is_a_new_test_without_code(pytester, ladder):
    pytester.path.joinpath("site.toml").write_text(
        """
        [[slo]]
        id = "single_card.ttft_p90"
        load = "interactive"
        metric = "ttft_ms"
        statistic = "p90"
        op = "<="
        bound = 400.0
        unit = "ms"
        scope = "engine"
        source = "contract 7.2"
        """
    )
    outcome = ladder("--rack-slo", "site.toml", stages=("single_card",))
    assert 0 == outcome.exit_code
    assert "PASS" == outcome.verdicts["single_card.ttft_p90 @ node2/gpu1"]
    assert ("rackgate.single_card", "single_card.ttft_p90 @ node2/gpu1") in outcome.cases


def test_a_metric_of_a_plugin_can_be_judged(extend, pytester, ladder):
    extend(
        '''
def answer_length(observation, slo, entity):
    """Tokens of the longest answer."""

def pytest_rack_metrics(config, register):
    register("answer_length_tokens", "tokens", answer_length)
'''
    )
    pytester.path.joinpath("site.toml").write_text(
        """
        [[slo]]
        id = "preflight.length"
        metric = "answer_length_tokens"
        op = ">="
        bound = 3
        unit = "tokens"
        scope = "rack"
        source = "ours"
        """
    )
    outcome = ladder("--rack-slo", "site.toml", stages=("preflight",), values={"preflight.length @ rack": 2})
    assert "FAIL" == outcome.verdicts["preflight.length @ rack"]
    (asked,) = (one for one in outcome.of("plan")[0]["checks"] if one["slo"] == "preflight.length")
    assert "Tokens of the longest answer." == asked["definition"]


def test_hooks_observe_each_record(extend, pytester, ladder):
    extend(
        """
def pytest_rack_record(record):
    with open("seen.txt", "a") as file:
        file.write(record["kind"] + "\\n")
"""
    )
    outcome = ladder(stages=("preflight",))
    assert [record["kind"] for record in outcome.records] == pytester.path.joinpath(
        "seen.txt"
    ).read_text().split()


def test_records_begin_with_run_and_plan_and_end_with_a_digest(ladder):
    import hashlib

    outcome = ladder(stages=("preflight",))
    kinds = [record["kind"] for record in outcome.records]
    assert ["run", "plan", "stage"] == kinds[:3]
    assert list(range(len(kinds))) == [record["seq"] for record in outcome.records]
    lines = (outcome.folder / "evidence" / "records.jsonl").read_bytes().splitlines(keepends=True)
    assert hashlib.sha256(b"".join(lines[:-1])).hexdigest() == outcome.end["digest"]
    assert len(lines) - 1 == outcome.end["records"]


@pytest.mark.parametrize("phase", ["setup", "call"])
def test_what_breaks_in_our_own_code_is_unknown_and_keeps_its_traceback(pytester, ladder, phase):
    text = pytester.path.joinpath("conftest.py").read_text()
    place = "    values = json" if phase == "setup" else ""
    broken = text.replace(place, "    if 'preflight' in rack_slo.id: raise OSError('disk is full')\n" + place)
    pytester.makeconftest(broken if phase == "setup" else text)
    if phase == "call":
        pytester.makepyfile(
            test_mine="""
            import pytest
            pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
            def test_slo(rack_slo):
                raise OSError("disk is full")
            """
        )
    outcome = ladder(stages=("preflight",) if phase == "setup" else ())
    outcome_name = "error" if phase == "setup" else "failure"
    check = "preflight.card_present @ node1/gpu0"
    found = outcome.cases["rackgate.preflight", check].find(outcome_name)
    assert (
        f"UNKNOWN {check}: died (OSError: disk is full), agreed == 1 bool"
        == found.get("message").split("\n")[0]
    )
    assert found.text.startswith("UNKNOWN")
    assert "raise OSError" in found.text
    assert 1 == outcome.exit_code
    assert {"UNKNOWN"} == {outcome.verdicts[check] for check in outcome.verdicts if "preflight" in check}
    assert "raise OSError" in outcome.of("event")[0]["text"]


def test_a_check_that_breaks_after_its_verdict_is_not_accepted(pytester, ladder):
    pytester.makepyfile(
        test_mine="""
        import pytest
        pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
        def test_slo(rack_slo, measured, rack_check):
            rack_check(rack_slo, measured)
            assert 1 == 2
        """
    )
    outcome = ladder(stages=())
    assert 1 == outcome.exit_code
    assert {"UNKNOWN"} == {outcome.verdicts[check] for check in outcome.verdicts}


def test_trying_again_does_not_make_it_right(pytester, ladder):
    pytester.makepyfile(
        test_mine="""
        import dataclasses, pytest
        pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("preflight")]
        def test_slo(rack_slo, measured, rack_check):
            try:
                rack_check(rack_slo, dataclasses.replace(measured, value=0.0))
            except BaseException:
                pass
            rack_check(rack_slo, measured)
        """
    )
    outcome = ladder(stages=())
    assert (1, "FAIL") == (outcome.exit_code, outcome.end["verdict"])


def test_a_teardown_that_breaks_is_not_accepted_and_is_named(extend, ladder):
    extend(
        """
@pytest.fixture(scope="session", autouse=True)
def sink():
    yield
    raise OSError("engine did not stop")
"""
    )
    outcome = ladder(stages=("preflight",))
    assert 1 == outcome.exit_code
    assert (
        "NOT ACCEPTED: 4 of 4 cards qualified; 0 FAIL, 0 UNKNOWN; 1 other test failed"
        == outcome.end["headline"]
    )


def test_a_failed_call_and_a_broken_teardown_are_one_test_by_name(extend, ladder):
    extend(
        """
@pytest.fixture(autouse=True)
def sink(request):
    yield
    if "card_present @ node1/gpu0" in request.node.name:
        raise OSError("x")
"""
    )
    check = "preflight.card_present @ node1/gpu0"
    outcome = ladder(stages=("preflight",), values={check: 0.0})
    names = [(case.get("classname"), case.get("name")) for case in outcome.junit.iter("testcase")]
    assert 2 == names.count(("rackgate.preflight", check))
    assert len(outcome.of("plan")[0]["checks"]) + 1 == len(set(names))


def test_a_users_own_row_is_judged_recorded_and_counted(pytester, run):
    pytester.makepyfile(
        """
        import pytest
        from rackgate.nouns.measurement import Measurement
        from rackgate.nouns.slo import Op, Scope, Slo
        @pytest.mark.rack_acceptance
        @pytest.mark.parametrize("value", [1.0, 3.0])
        def test_mine(rack_check, value):
            row = Slo(id="preflight.mine", stage="preflight", metric="doors", statistic="value",
                      op=Op.AT_MOST, bound=2.0, unit="doors", scope=Scope.RACK, source="ours")
            seen = Measurement(
                metric="doors", entity=f"rack{value:.0f}", value=value, unit="doors", count=1)
            rack_check(row, seen)
        """
    )
    outcome = run("-m", "rack_acceptance", "--rack-out", "run")
    assert {"preflight.mine @ rack1": "PASS", "preflight.mine @ rack3": "FAIL"} == outcome.verdicts
    assert 1 == outcome.exit_code
    assert "FAIL preflight.mine @ rack3: 3 doors, agreed <= 2 doors" in outcome.text


def test_a_view_that_cannot_be_written_is_an_internal_error_and_the_evidence_stays(extend, ladder):
    extend(
        """
def as_csv(run):
    raise OSError("no columns")

def pytest_rack_reports(config, register):
    register("verdicts.csv", as_csv)
"""
    )
    outcome = ladder(stages=("preflight",))
    assert 3 == outcome.exit_code
    assert "the views could not be written:" in outcome.text
    assert "OSError: no columns" in outcome.text
    assert "PASS" == outcome.end["verdict"]
    assert outcome.cases
