"""Each check during a load, from the driver's library to the verdict: it fails, and it stays unknown."""

import time

import pytest
from nvml_stand_in import node_of, until

from rackgate.judging.judge import judge
from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.shipped import register_metrics
from rackgate.nouns.load import Load
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target
from rackgate.nouns.verdict import Verdict
from rackgate.telemetry.cards.nvml_source import NvmlSource
from rackgate.telemetry.reading import Reading
from rackgate.telemetry.sampler import Sampler

pytestmark = pytest.mark.slow

METRICS = {}
register_metrics(lambda name, unit, function, **_: METRICS.update({name: (unit, function)}))

# check: (operator, bound, what breaks it in mid-load, what hides it)
CHECKS = {
    "temperature_margin_c": (">=", 2.0, {"margin": 1}, {"margin!": 3, "threshold.1!": 3}),
    "power_limit_share": ("<=", 1.05, {"power_mw": 1_900_000}, {"power_mw!": 999}),
    "throttle_counters_s": ("<=", 0.1, {"field.270": 900_000_000}, {"field.270!": 3}),
    "performance_state": ("==", 0.0, {"pstate": 2}, {"pstate": 32}),
    "idle_share": ("<=", 0.5, {"reasons": 1}, {"reasons!": 3}),
    "ecc_uncorrectable_growth": ("<=", 0.0, {"ecc_0_1": 1}, {"ecc_0_1!": 3}),
    "remapped_rows_growth": ("<=", 0.0, {"remapped": "1 1 0 0"}, {"remapped!": 3}),
    "pcie_replay_growth": ("<=", 0.0, {"pcie_replays": 40}, {"pcie_replays!": 4}),
    "pcie_replays_per_min": ("<=", 31.0, {"pcie_replays": 40}, {"pcie_replays!": 4}),
    "application_clocks_share": ("==", 0.0, {"reasons": 2}, {"reasons!": 3}),
    "nvlink_error_growth": ("<=", 0.0, {"field.221": 3}, {"field.221!": 3}),
    "memory_temperature_c": ("<=", 95.0, {"field.82": 99}, {"field.82!": 3}),
}


def observed(stand_in, folder, before, during, *, watch=True, xid=None):
    """Sample a load of the stand-in's cards, changed half-way, and return what a stage would see."""
    node = node_of(2)
    stand_in.card(0, **before)
    source = NvmlSource(node, slow_s=0.0, environment=stand_in.environment)
    sampler = Sampler([source], folder / "parts", interval_s=0.02, timeout_s=30.0)
    sampler.start()
    until(lambda: sampler.last_sample_ns)
    begin = time.perf_counter_ns()
    wait_for_samples(sampler, begin)
    change = time.perf_counter_ns()
    stand_in.card(0, **during)
    if xid is not None:
        stand_in.xid(0, xid)
        until(lambda: len(sampler.window(begin, time.perf_counter_ns()).series("n1/gpu0", "xid").t_ns))
    wait_for_samples(sampler, change + 50_000_000, count=12)  # most of the window is after the change
    end = time.perf_counter_ns()
    if watch:
        sampler.take([Reading(end, "n1", "n1", "xid_watch", 1.0)])
    table = sampler.window(begin, end)
    sampler.stop()
    source.close()
    engines = tuple(
        EngineSpec(
            name=f"e{card.index}",
            launcher="remote",
            model="m",
            members=(Member(node="n1", cards=(card.name,)),),
        )
        for card in node.cards
    )
    target = Target(name="rack", model="m", grade="accelerator", nodes=(node,), engines=engines)
    load = Load(name="mix", prompt_tokens=1, output_tokens=1, arrival="closed", concurrency=1, looks=(1,))
    offered = OfferedLoad(
        load=load,
        label="all",
        engines=("n1/gpu0", "n1/gpu1"),
        start_ns=begin,
        end_ns=end,
        steady_start_ns=begin,
        steady_end_ns=end,
        counters=Counters(scheduled=1, started=1, dropped=0, outcomes={}),
        samples=None,
        samples_path=None,
        peak_in_flight=1,
        reason=None,
        detail="",
    )
    return Observation(
        stage="soak",
        target=target,
        load_runs=(LoadRun(load="mix", label="all", looks=(offered,)),),
        telemetry=table,
    )


def wait_for_samples(sampler, since_ns, count=4):
    def enough():
        series = sampler.window(since_ns, time.perf_counter_ns()).series("n1/gpu1", "power_w")
        return (series.t_ns > since_ns).sum() >= count

    until(enough)


def verdict(observation, metric, op, bound, entity="n1/gpu0"):
    unit, function = METRICS[metric]
    slo = Slo(
        id=f"soak.{metric}",
        stage="soak",
        metric=metric,
        statistic="value",
        op=Op(op),
        bound=bound,
        unit=unit,
        scope=Scope.CARD,
        source="test",
        load="mix",
    )
    return judge(Check(slo=slo, entity=entity), function(observation, slo, entity)).verdict


@pytest.mark.parametrize("metric", CHECKS)
def test_a_check_fails_for_the_card_that_breaks_it_and_for_no_other(stand_in, tmp_path, metric):
    op, bound, broken, _ = CHECKS[metric]
    seen = observed(stand_in, tmp_path, {}, broken)
    assert verdict(seen, metric, op, bound) == Verdict.FAIL
    assert verdict(seen, metric, op, bound, "n1/gpu1") == Verdict.PASS


@pytest.mark.parametrize("metric", CHECKS)
def test_a_check_without_its_signal_is_unknown(stand_in, tmp_path, metric):
    op, bound, _, hidden = CHECKS[metric]
    seen = observed(stand_in, tmp_path, hidden, {})
    assert verdict(seen, metric, op, bound) == Verdict.UNKNOWN
    assert verdict(seen, metric, op, bound, "n1/gpu1") == Verdict.PASS


def test_an_xid_of_the_driver_fails_its_card_even_if_nobody_reads_the_kernel_log(stand_in, tmp_path):
    seen = observed(stand_in, tmp_path, {}, {}, watch=False, xid=79)
    assert verdict(seen, "xids_failed", "<=", 0.0) == Verdict.FAIL
    assert verdict(seen, "xids_failed", "<=", 0.0, "n1/gpu1") == Verdict.UNKNOWN


def test_a_card_that_is_lost_in_mid_load_is_no_pass(stand_in, tmp_path):
    seen = observed(stand_in, tmp_path, {}, {"lost": 1})
    for metric, (op, bound, _, _) in CHECKS.items():
        assert verdict(seen, metric, op, bound) == Verdict.UNKNOWN
