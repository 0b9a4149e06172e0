from __future__ import annotations

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.metrics.shipped import shipped_registry
from rackgate_reports.formatting import metric_name
from rackgate_reports.titles import TITLES, title_of

REGISTRY = shipped_registry()
UNITS = {name: metric.unit for name, metric in REGISTRY.metrics.items()}
OF_NO_ROW = {"cold_start_s"}


@pytest.mark.parametrize("metric", sorted(UNITS))
def test_every_metric_that_ships_has_a_title_and_a_unit(metric: str) -> None:
    title = TITLES[metric]
    assert UNITS[metric]
    assert title == title.strip()
    assert "_" not in title
    assert title[0].isupper()


def test_no_title_is_of_a_metric_that_there_is_not() -> None:
    assert set(TITLES) - OF_NO_ROW == set(UNITS)


def test_no_two_metrics_have_one_title() -> None:
    assert len(TITLES) == len(set(TITLES.values()))


def test_what_a_probe_measures_is_called_by_the_probe_and_its_value() -> None:
    rows = load_acceptance(None, "signoff", metrics=REGISTRY.metrics, target=None).slos
    probed = [row for row in rows if row.metric.startswith("probe.")]
    assert all(row.unit for row in probed)
    assert not [row.metric for row in probed if "_" in title_of(row.metric)]
    assert title_of("probe.all_reduce.busbw") == "all reduce: busbw"


def test_a_metric_of_a_site_keeps_its_name() -> None:
    assert metric_name("our_metric") == "our_metric"
