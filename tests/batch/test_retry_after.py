from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.retry_after import retry_after_s, wait_s

CASES = Path(__file__).parent.parent / "cases"
NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)


def test_seconds_and_dates_are_read_and_nonsense_is_none():
    expected = json.loads((CASES / "expected.json").read_text())["ENG-06"]["expected"]
    case = json.loads((CASES / "inputs" / "ENG-06.json").read_text())
    now = parsedate_to_datetime(case["now"])
    found = [retry_after_s(value, now) for value in case["values"]]
    assert expected["delay_s"] == found
    assert expected["cap_s"] == wait_s(found[0], 0, cap_s=expected["cap_s"])


def test_values_that_are_no_wait():
    for value in (None, "", "nan", "inf", "-inf", "1e999", "Wed, 99 Oct 2026 07:28:30 GMT", "\u0663\u0660x"):
        assert retry_after_s(value, NOW) is None
    assert 0.0 == retry_after_s("-5", NOW)


@given(st.text(max_size=40))
def test_no_text_raises_or_asks_for_a_negative_wait(value):
    found = retry_after_s(value, NOW)
    assert found is None or found >= 0.0


@given(st.none() | st.floats(0, 1e12), st.integers(0, 10_000), st.floats(0, 300), st.floats(0.5, 1.0))
def test_no_wait_is_longer_than_the_cap(asked_s, attempt, cap_s, jitter):
    assert 0.0 <= wait_s(asked_s, attempt, cap_s=cap_s, jitter=jitter) <= cap_s
