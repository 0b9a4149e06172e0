"""Each shipped row that is not met says where, what was seen, and what to do first."""

from dataclasses import replace

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.acceptance_tables import PROFILES
from rackgate.diagnosis.chain import chain_of
from rackgate.judging.judge import judge
from rackgate.judging.message import hint_of, verdict_message
from rackgate.metrics.layers import layer_of_row
from rackgate.metrics.registry import Registry
from rackgate.metrics.shipped import register_metrics
from rackgate.nouns.measurement import Layer, Measurement, Reason, missing
from rackgate.nouns.slo import Check, Op
from rackgate.nouns.verdict import Verdict


def _shipped():
    registry, rows = Registry(), {}
    register_metrics(registry.add_metric)
    for profile in PROFILES:
        acceptance = load_acceptance(None, profile, metrics=registry.metrics, target=None)
        registry.add_probes(acceptance.probes)
        rows |= {row.id: row for row in acceptance.slos}
    return registry.metrics, rows


METRICS, ROWS = _shipped()


def lines_of(check, measurement):
    judgement = judge(check, measurement)
    layer = layer_of_row(check.slo, METRICS[check.slo.metric].layer)
    chain = chain_of(measurement, judgement, layer, hint_of(check, measurement, judgement))
    text = verdict_message(check, measurement, judgement, chain)
    return judgement.verdict, dict(line.strip().split(maxsplit=1) for line in text.splitlines()[1:]), chain


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_that_is_not_met_has_a_layer_what_was_seen_and_a_next_step(row):
    beyond = row.bound * 0.5 - 1 if row.op is Op.AT_LEAST else row.bound * 2 + 1
    measurement = Measurement(metric=row.metric, entity="e", value=beyond, unit=row.unit, count=9999)
    verdict, told, chain = lines_of(Check(slo=row, entity="e"), measurement)
    assert verdict in (Verdict.FAIL, Verdict.WARN)
    assert told["layer"] in set(Layer)
    assert told["value"].startswith(row.metric)
    assert told["next"] == row.hint
    assert len(told["next"]) > 20
    assert [link.layer for link in chain.links] == [told["layer"]]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_without_a_value_has_them_too(row):
    nothing = missing(row.metric, "e", row.unit, Reason.TIMEOUT, "no answer within 2 s")
    verdict, told, _ = lines_of(Check(slo=row, entity="e"), nothing)
    assert verdict is Verdict.UNKNOWN
    assert (told["layer"], told["seen"], told["next"]) == (
        "network",
        "no answer within 2 s",
        Reason.TIMEOUT.cure,
    )


def test_a_row_may_say_its_layer_itself_and_a_metric_that_says_nothing_has_its_scopes():
    row = ROWS["cross_node.call_latency_p95"]
    assert layer_of_row(row, METRICS["e2e_ms"].layer) is Layer.NETWORK
    assert layer_of_row(replace(row, layer=""), METRICS["e2e_ms"].layer) is Layer.SERVICE
    assert layer_of_row(ROWS["single_card.temperature"], None) is Layer.HARDWARE


def test_a_plugins_metric_may_say_its_layer():
    registry = Registry()
    registry.add_metric("m", "s", METRICS["ttft_ms"].function, layer="model")
    assert registry.metrics["m"].layer is Layer.MODEL
    with pytest.raises(ValueError, match="'cellar' is not a valid Layer"):
        registry.add_metric("n", "s", METRICS["ttft_ms"].function, layer="cellar")
