import re
from pathlib import Path

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.hosts.facts.host import FACTS
from rackgate.metrics.inputs import KINDS, Input, UnknownInput, alternatives
from rackgate.metrics.shipped import shipped_registry

DOCS = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


@pytest.fixture
def registry():
    return shipped_registry()


@pytest.mark.parametrize("profile", ["smoke", "signoff"])
def test_every_shipped_row_says_what_it_is_made_from(registry, profile):
    agreed = load_acceptance(None, profile, metrics=registry.metrics, target=None)
    registry.add_probes(agreed.probes)
    assert [row.id for row in agreed.slos if not registry.metrics[row.metric].needs] == []


def test_every_fact_of_a_host_that_a_metric_needs_is_read_from_hosts(registry):
    needed = {
        one.name
        for metric in registry.metrics.values()
        for written in metric.needs
        for one in alternatives(written)
        if one.kind == "host"
    }
    assert needed - set(FACTS) == set()


def test_several_inputs_of_which_any_is_enough_are_read_apart():
    assert alternatives("card:energy_j|card:power_w") == (
        Input("card", "energy_j"),
        Input("card", "power_w"),
    )


@pytest.mark.parametrize("written", ["exporters:power_w", "card:power", "redfish:power", ""])
def test_a_metric_that_needs_what_nobody_knows_is_refused_by_name(registry, written):
    with pytest.raises(UnknownInput, match=r"metric 'mine': .*"):
        registry.add_metric("mine", "W", alternatives, inputs=(written,))


def test_every_kind_of_input_stands_in_the_docs_with_its_meaning():
    section = DOCS.split("## What a metric is made from", 1)[1].split("\n## ", 1)[0]
    assert dict(re.findall(r"(?m)^\| `(\w+)` \| (.+) \|$", section)) == KINDS
