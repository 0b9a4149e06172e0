"""Stage preflight: hosts and tools before anything is started, then every engine, gateway and card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rackgate.judging.judge import judge
from rackgate.metrics.observation import Observation
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Check, Severity
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.card_memory import unaccounted_memory
from rackgate.preflight.engines import probe_apis, probe_engines, probe_gateway
from rackgate.preflight.hosts import inspect_hosts, who_answered
from rackgate.preflight.nodes import (
    measured_hosts,
    measured_nodes,
    memory_before_engines,
    probe_cards,
    recorded_facts,
)
from rackgate.run.run import Run
from rackgate.stages.probe_runs import run_probes
from rackgate.stages.site import Site

STAGE = "preflight"
_KEEP_ENGINES_DOWN = ("host_module", "host_driver", "host_cuda", "host_runtime")


def observe_preflight(run: Run, start_engines: Callable[[], Site]) -> Observation:
    """Inspect hosts, run the tools that rows ask for, start the engines, then probe engines and cards.

    The engines of a host whose module, driver, CUDA or container runtime fails are not started: they would
    only repeat at length what the host says.
    """
    run.say(f"{STAGE}: {len(run.target.nodes)} hosts")
    hosts = inspect_hosts(run.target, profile=run.profile, hung=run.hung)
    if hosts.facts:
        run.event("hosts", who_answered(hosts))
        run.say(f"{STAGE}: {who_answered(hosts)}")
    run.held = engines_to_hold(run.ledger.planned.values(), measured_hosts(run.target, hosts.facts))
    before = memory_before_engines(run.target)
    tools = run_probes(run, STAGE, engines_up=False)
    site = start_engines()
    target = site.target
    run.say(f"{STAGE}: {len(target.engines)} engines, gateway, exporters, controllers")
    nodes = measured_nodes(target, hosts, site.process_groups)
    for node, facts in recorded_facts(target, hosts.facts, nodes.firmware).items():
        run.record("facts", node=node, facts=facts)
    engines = probe_engines(target, site.failures)
    probes = {
        **tools,
        **engines,
        **probe_apis(target, engines),
        **probe_gateway(site.gateway(), site.failures),
        **probe_cards(target),
        **nodes.probes,
    }
    probes |= unaccounted_memory(target, probes, before)
    return Observation(stage=STAGE, target=target, probes=probes, profile=run.profile)


def engines_to_hold(checks: Iterable[Check], probes: Mapping[tuple[str, str], Measurement]) -> dict[str, str]:
    """Return the nodes whose engines are not to be started, each with the check that FAILs there.

    A failed module, driver or CUDA keeps down every engine of the node. A failed container runtime keeps
    down those in containers: the key is then `NODE container`.
    """
    found: dict[str, str] = {}
    for check in checks:
        measured = probes.get((check.slo.metric, check.entity))
        if check.slo.metric not in _KEEP_ENGINES_DOWN or measured is None:
            continue
        if check.slo.severity is Severity.BLOCKER and judge(check, measured).verdict is Verdict.FAIL:
            suffix = " container" if check.slo.metric == "host_runtime" else ""
            found.setdefault(f"{check.entity}{suffix}", check.id)
    return found
