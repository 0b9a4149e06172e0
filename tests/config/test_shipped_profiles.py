"""The shipped rows and profiles, and what the examples lay over them."""

from pathlib import Path

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.acceptance_tables import PROFILES
from rackgate.config.problems import ConfigError
from rackgate.metrics.shipped import shipped_registry
from rackgate.simulator.settings import RackSettings, simulated_target

METRICS = shipped_registry().metrics

OVERLAYS = sorted((Path(__file__).parents[2] / "examples" / "acceptance").glob("*.toml"))


@pytest.mark.parametrize("nodes", [1, 2, 9, 18])
@pytest.mark.parametrize("profile", PROFILES)
def test_each_shipped_profile_can_be_decided_on_a_rack_of_any_size(shipped, rack, profile, nodes):
    assert shipped(profile, target=rack(nodes=nodes, engines=4)).slos


@pytest.mark.parametrize("profile", PROFILES)
def test_each_shipped_profile_is_consistent_and_every_row_has_source_and_hint(shipped, profile):
    agreed = shipped(profile)
    assert 40 < len(agreed.slos)
    assert [] == [row.id for row in agreed.slos if not (row.source and row.hint)]
    assert all(override.reason for override in agreed.overrides)


def test_the_sites_file_lies_over_the_shipped_rows(shipped, tmp_path):
    site = tmp_path / "site.toml"
    site.write_text('[[slo]]\nid = "single_card.ttft_p50"\nbound = 250.0\nreason = "contract 3"\n')
    agreed = shipped(path=site)
    assert 250.0 == agreed.slo("single_card.ttft_p50").bound
    assert (str(site), "contract 3") == (agreed.overrides[-1].file, agreed.overrides[-1].reason)
    names = ("defaults", "workloads", "probes", "smoke")
    shipped_files = tuple(f"shipped {name}.toml" for name in names)
    assert (*shipped_files, str(site)) == agreed.files


@pytest.mark.parametrize(("scenario", "asked"), [("healthy", False), ("hot_card", True)])
def test_the_margin_of_a_b200_is_asked_of_b200_alone(shipped, scenario, asked):
    target = simulated_target(RackSettings(scenario=scenario))
    checks = plan_checks(target, shipped("ci", target=target).slos, metrics=METRICS, probes={})
    of_b200 = {check.entity for check in checks if check.slo.id == "single_card.temperature_margin_b200"}
    assert {card.name for card in target.cards if asked} == of_b200
    assert asked == ({"B200"} == {card.sku for card in target.cards})
    assert {card.name for card in target.cards} == {
        check.entity for check in checks if check.slo.id == "single_card.temperature_margin"
    }


def test_no_shipped_row_keeps_the_source_of_another_limit(shipped):
    row = shipped("smoke").slo("single_card.error_rate")
    assert row.source.startswith("changed by shipped smoke.toml: smoke: about a hundred requests")
    assert row.source.endswith("(<= 0.001 ratio)")


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.stem)
def test_an_example_of_an_acceptance_file_lies_over_the_shipped_rows(shipped, path):
    agreed = shipped(path=path)
    own = [override for override in agreed.overrides if override.file == str(path)]
    assert own
    assert all(override.reason for override in own)


def test_a_file_that_is_no_toml_is_told(shipped, tmp_path):
    site = tmp_path / "site.toml"
    site.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        shipped(path=site)


def test_the_rows_of_the_load_generator_follow_the_tightest_tail_of_ttft(shipped, tmp_path):
    rows = ("selfcheck.measurement_error_p99", "selfcheck.schedule_lag_p99")
    assert [9.0, 9.0] == [shipped().slo(row).bound for row in rows]
    site = tmp_path / "site.toml"
    change = '[[slo]]\nid = "{row}"\nbound = {bound}\nreason = "contract 3"\n'
    for row, bound, expected in (
        ("single_card.ttft_p95", 100.0, 2.0),
        ("single_card.ttft_p50", 100.0, 9.0),
        ("soak.ttft_p99", 20.0, 1.0),
    ):
        site.write_text(change.format(row=row, bound=bound))
        agreed = shipped(path=site)
        assert [expected, expected] == [agreed.slo(one).bound for one in rows]
    assert "2 % of the tightest bound of a TTFT tail, 20 ms" == agreed.slo(rows[0]).source
