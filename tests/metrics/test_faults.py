"""A fault is judged on the survivors, and a late load generator takes away only what it could falsify."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.engines.protocols.answer import Ending
from rackgate.engines.protocols.protocol import protocol_named
from rackgate.metrics.requests import faults
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Reason

CASES = Path(__file__).parents[1] / "cases"
DRAINS = json.loads((CASES / "inputs" / "ENG-08.json").read_text())
EXPECTED = json.loads((CASES / "expected.json").read_text())["ENG-08"]["expected"]
SECOND = 1_000_000_000
VICTIM, SURVIVOR = "node1/gpu1", "node1/gpu0"
TIMELINE = FaultTimeline(
    kind="kill",
    entity=VICTIM,
    injected_ns=20 * SECOND,
    proven_ns=20 * SECOND,
    healed_ns=50 * SECOND,
    proven_healed_ns=51 * SECOND,
)


@pytest.fixture
def measure(seen, request_of, check_of):
    """Measure a metric of a kill at second 20, healed at 50; the victim's requests of `failing` fail."""

    def measure(function, unit, *, failing=range(20, 24), lag_ms=0, bound=5.0, timeline=TIMELINE, **row):
        requests = [
            request_of(
                second,
                ttft_ms=None if second in failing else 30.0,
                engine=VICTIM if second in failing or second % 2 else SURVIVOR,
                lag_ms=lag_ms,
            )
            for second in range(80)
        ]
        check = check_of(function.__name__, unit, bound=bound, entity="rack", **row)
        return function(seen(requests, faults=[timeline]), check.slo, check.entity)

    return measure


def test_detection_lasts_to_the_last_failure_before_the_healing(measure):
    found = measure(faults.detection_s, "s")
    assert (3.0, "4 requests failed") == (found.value, found.detail)


def test_a_victim_that_fails_until_it_is_healed_was_never_detected(measure):
    assert math.inf == measure(faults.detection_s, "s", failing=range(20, 50)).value


def test_recovery_is_the_first_answer_of_the_victim_after_the_healing(measure):
    assert 31.0 == measure(faults.recovery_s, "s").value


def test_a_fault_whose_effect_was_not_proven_says_nothing(measure):
    unproven = FaultTimeline(kind="kill", entity=VICTIM, injected_ns=20 * SECOND, detail="still answers")
    found = measure(faults.detection_s, "s", timeline=unproven)
    assert (None, Reason.ABSENT) == (found.value, found.reason)
    assert "no proven effect: still answers" in found.detail


def test_survivors_answer_for_themselves_alone(measure):
    assert 0.0 == measure(faults.survivor_error_rate, "ratio").value
    assert 30.0 == measure(faults.survivor_ttft_ms, "ms", statistic="p95").value
    assert 4 / 30 == measure(faults.fault_error_rate, "ratio").value


@pytest.mark.parametrize(
    ("function", "unit", "bound", "lag_ms", "measured"),
    [
        (faults.fault_error_rate, "ratio", 0.05, 5000, True),
        (faults.survivor_error_rate, "ratio", 0.02, 5000, True),
        (faults.detection_s, "s", 5.0, 99, True),
        (faults.detection_s, "s", 5.0, 101, False),
        (faults.recovery_s, "s", 60.0, 1199, True),
        (faults.recovery_s, "s", 60.0, 1201, False),
        (faults.survivor_ttft_ms, "ms", 450.0, 9, True),
        (faults.survivor_ttft_ms, "ms", 450.0, 11, False),
    ],
)
def test_a_late_load_generator_takes_away_only_what_it_could_falsify(
    measure, function, unit, bound, lag_ms, measured
):
    row = {"statistic": "p95"} if unit == "ms" else {}
    found = measure(function, unit, bound=bound, lag_ms=lag_ms, **row)
    assert measured == (found.value is not None)
    assert measured or (Reason.INSTRUMENT, True) == (found.reason, "the load generator sent" in found.detail)


def streamed(end_s, finish_reason):
    """What a run makes of a stream whose connection ends then, with this finish reason or none."""
    reader = protocol_named("openai").reader()
    for delta, reason in (({"content": "word"}, None), ({}, finish_reason)):
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        reader.feed(int(end_s * SECOND) - 1, f"data: {json.dumps(chunk)}\n\n".encode())
    return reader.close(int(end_s * SECOND), Ending.COMPLETE if finish_reason else Ending.LOST)


@pytest.mark.parametrize("name", EXPECTED)
def test_eng_08_a_drain_is_judged_by_the_fate_of_the_requests(name, seen, request_of, check_of):
    """Not by how long the process lived after its SIGTERM, nor by its exit code."""
    case, expected = DRAINS[name], EXPECTED[name]
    signal_s = case["sigterm_s"]
    requests = [request_of(second, ttft_ms=30.0) for second in range(signal_s - 1)]
    for number, stream in enumerate(case["streams"]):
        answer = streamed(stream["end_s"], stream["finish_reason"])
        running = request_of(signal_s - 1, ttft_ms=30.0)
        requests.append(
            replace(running, request_id=f"s{number}", outcome=answer.outcome, done_ns=answer.done_ns)
        )
    stop = replace(
        TIMELINE, kind="term", injected_ns=signal_s * SECOND, healed_ns=int(case["exit_s"] * SECOND)
    )
    row = check_of("fault_error_rate", "ratio", entity="rack").slo
    found = faults.fault_error_rate(seen(requests, faults=[stop]), row, "rack")
    assert f"{expected['lost_requests']} failed" == found.detail
    assert (expected["drained"], len(case["streams"])) == (found.value == 0.0, found.count)


def test_eng_08_without_a_running_request_nothing_was_put_to_the_test(seen, request_of, check_of):
    requests = [request_of(second, ttft_ms=30.0) for second in range(9)]
    stop = replace(TIMELINE, injected_ns=10 * SECOND, healed_ns=11 * SECOND)
    row = check_of("fault_error_rate", "ratio", entity="rack").slo
    found = faults.fault_error_rate(seen(requests, faults=[stop]), row, "rack")
    assert (None, Reason.ABSENT) == (found.value, found.reason)
