"""Values as people read them."""

from __future__ import annotations

import math

import pytest

from rackgate_reports.formatting import amount, clip, duration, limit, margin, metric_name


def spaced(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (412.3, "ms", "412 ms"),
        (0.0123456, "s", "0.0123 s"),
        (1284.4, "tok/s", "1,284 tok/s"),
        (0.0, "ratio", "0 ratio"),
        (-3.5, "°C", "\N{MINUS SIGN}3.50 °C"),
        (math.inf, "ms", "∞ ms"),
        (None, "ms", "\N{EN DASH}"),
        (4.0, "cards", "4 cards"),
    ],
)
def test_an_amount_has_three_digits_and_its_unit(value: float | None, unit: str, expected: str) -> None:
    assert expected == spaced(amount(value, unit))


def test_a_value_just_over_its_limit_does_not_look_equal_to_it() -> None:
    assert spaced(amount(500.04, "ms", beside=500.0)) == "500.04 ms"


def test_a_limit_is_shown_exactly() -> None:
    assert spaced(limit("<=", 0.0015, "ratio")) == "≤ 0.0015 ratio"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.125, "+12 %"), (-0.034, "\N{MINUS SIGN}3.4 %"), (0.0, "0 %"), (-math.inf, "\N{MINUS SIGN}∞ %")],
)
def test_a_margin_is_a_signed_percentage(value: float, expected: str) -> None:
    assert expected == spaced(margin(value))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.25, "250 ms"), (4.2, "4.2 s"), (200, "3 min 20 s"), (86_400 * 3, "3 d"), (4320, "1 h 12 min")],
)
def test_a_duration_has_two_units(seconds: float, expected: str) -> None:
    assert expected == spaced(duration(seconds))


def test_a_cut_text_says_how_much_is_missing() -> None:
    assert clip("x" * 1000, 10) == "xxxxxxxxxx … (990 more characters)"


def test_a_clipped_text_has_one_line_and_no_control_characters() -> None:
    assert clip("a\n b\x1b") == "a b\\x1b"


def test_value_and_unit_stay_on_one_line() -> None:
    assert clip(amount(3.0, "ms")) == "3\N{NO-BREAK SPACE}ms"


def test_a_metric_is_named_with_its_statistic() -> None:
    assert metric_name("ttft_ms", "p99") == "TTFT P99"
