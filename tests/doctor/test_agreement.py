"""What the doctor says of preflight beforehand is what preflight then says."""

from dataclasses import replace

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.acceptance_file import load_acceptance
from rackgate.doctor.forecast import Outlook, forecast
from rackgate.doctor.snapshot import take_snapshot
from rackgate.engines.api_smoke import SMOKE
from rackgate.judging.judge import judge
from rackgate.metrics.metric import measure
from rackgate.metrics.observation import Observation
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.card_memory import unaccounted_memory
from rackgate.preflight.engines import probe_engines, probe_gateway
from rackgate.preflight.host_metrics import of_group
from rackgate.preflight.hosts import inspect_hosts
from rackgate.preflight.nodes import measured_nodes, probe_cards
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings
from rackgate.stages.site import Site

pytestmark = pytest.mark.slow

METRICS = shipped_registry().metrics

NEEDS_WORK = ("first_request_ok", "gateway_request_ok", *SMOKE, *of_group("storage"), *of_group("container"))
"""What only requests, reads or a container can tell: the doctor makes none."""


def site_of(rack):
    specs = tuple(replace(engine.spec, launcher="remote") for engine in rack.engines)
    return Site(target=replace(rack.target, engines=specs), engines={one.entity: one for one in rack.engines})


SCENARIOS = (
    *("healthy", "lost_card", "blank_telemetry", "silent_exporter"),
    *("dead_engine", "wrong_model", "neglected_host", "mute_host"),
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_doctor_says_beforehand_what_preflight_then_says(registry, scenario, monkeypatch):
    monkeypatch.setenv("RACKGATE_SIMULATED_CONTROLLER", "anyone")  # it takes whom the variable names
    rows = load_acceptance(None, "smoke", metrics=registry.metrics, target=None).slos
    rows = [row for row in rows if row.metric in registry.metrics]  # what probes measure is their file's
    with start_rack(RackSettings(scenario=scenario)) as rack:
        site = site_of(rack)
        checks = plan_checks(site.target, rows, ("preflight",), metrics=METRICS, probes={})
        found = forecast(checks, registry.metrics, take_snapshot(site.target))
        probes = {
            **probe_engines(site.target, site.failures),
            **probe_gateway(site.gateway(), site.failures),
            **probe_cards(site.target),
            **measured_nodes(site.target, inspect_hosts(site.target)).probes,
        }
        probes |= unaccounted_memory(site.target, probes)
    seen = Observation(stage="preflight", target=site.target, probes=probes)
    told, judged = {}, {}
    for one in found:
        if one.outlook in (Outlook.ABSENT, Outlook.UNSEEN) or one.check.slo.metric in NEEDS_WORK:
            continue
        told[one.check.id] = str(one.outlook).replace("run", "PASS")
        measured = measure(registry.metrics, one.check.slo, one.check.entity, seen)
        judged[one.check.id] = str(judge(one.check, measured).verdict)
    assert judged == told
    assert scenario == "healthy" or {*judged.values()} - {str(Verdict.PASS)}
