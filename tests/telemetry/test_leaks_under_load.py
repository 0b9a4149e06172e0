"""Leak detectors are asked seldom: when their word holds for a load, and when it does not."""

import pytest
from tests.telemetry.test_load_metrics import SECOND, measured, readings

from rackgate.telemetry.reading import Reading


def test_a_leak_detector_that_is_not_enabled_leaves_the_load_unknown():
    rows = [*readings("leak_detectors_wet", [0]), *readings("leak_detectors_unknown", [0, 0, 1])]
    found = measured("leaks_seen", rows)
    assert (found.value, "not enabled" in found.detail) == (None, True)


@pytest.mark.parametrize(
    ("seen_s", "value", "detail"),
    [
        ((8, 12, 21), 0, ""),
        ((8, 12), None, "not seen in the last 8 s of the load"),
        ((8, 12, 40), None, "not seen in the last 8 s of the load"),
    ],
)
def test_what_is_asked_seldom_speaks_for_a_load_if_it_was_asked_at_its_end(seen_s, value, detail):
    rows = [
        Reading(second * SECOND, "n1", "n1/gpu0", f"leak_detectors_{kind}", 0.0)
        for kind in ("wet", "unknown")
        for second in seen_s
    ]
    found = measured("leaks_seen", rows)
    assert (found.value, found.detail[: len(detail)]) == (value, detail)
