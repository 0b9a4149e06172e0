"""Direct looks at engines, gateway and cards, each by layer: network, service, model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from rackgate.measurement import Measurement, Reason, missing
from rackgate.telemetry.reading import REQUIRED

if TYPE_CHECKING:
    import httpx

    from rackgate.engines.probe import EngineProbe
    from rackgate.site import Site
    from rackgate.target import EngineSpec, Node, Target
    from rackgate.telemetry.reading import Reading

__all__ = ["probe_cards", "probe_engines", "probe_gateway"]

Probes = dict[tuple[str, str], Measurement]

_DEADLINE_S = 15.0
_POLLS = 3


def probe_engines(site: Site, deadline_s: float = _DEADLINE_S) -> Probes:
    """Return whether each engine is reachable, serves the model and gives a token.

    What cannot be reached over the network says nothing about the service: UNKNOWN, not FAIL.
    """
    from rackgate.engines.launchers.outcome import key_headers
    from rackgate.engines.probe import probe_engine

    def look(spec: EngineSpec) -> EngineProbe:
        return probe_engine(spec.url or "", spec.model, key_headers(spec), spec.protocol, deadline_s)

    found: Probes = {}
    with ThreadPoolExecutor(max_workers=16) as pool:
        for spec, probe in zip(site.target.engines, pool.map(look, site.target.engines), strict=True):
            found.update(_engine_measurements(spec, probe))
    return found


def _engine_measurements(spec: EngineSpec, probe: EngineProbe) -> Probes:
    entity = spec.entity
    refused = probe.layer_failed == "network" and probe.refused
    if probe.layer_failed == "network" and not refused:
        names = ("engine_reachable", "model_served", "first_request_ok")
        return {(name, entity): _unreachable(name, entity, probe) for name in names}
    found = {("engine_reachable", entity): _bool("engine_reachable", entity, not refused, probe.message)}
    if refused:
        for name in ("model_served", "first_request_ok"):
            found[name, entity] = _unreachable(name, entity, probe)
        return found
    if probe.served_models is None:
        text = probe.message or f"{spec.url} does not list its models"
        found["model_served", entity] = missing("model_served", entity, "bool", Reason.UNSUPPORTED, text)
    else:
        listed = ", ".join(probe.served_models) or "nothing"
        text = f"asked {spec.model}, listed: {listed}"
        found["model_served", entity] = _bool("model_served", entity, spec.model in probe.served_models, text)
    text = probe.message or f"first token after {probe.first_token_ms or 0.0:.0f} ms"
    found["first_request_ok", entity] = _bool("first_request_ok", entity, probe.ok, text)
    return found


def probe_gateway(site: Site, deadline_s: float = _DEADLINE_S) -> Probes:
    """Return whether one request through the gateway gives a token; nothing if no gateway is declared."""
    from rackgate.engines.probe import probe_engine

    name = "gateway_request_ok"
    if site.target.gateway is None or site.target.gateway.url is None:
        return {}
    front = site.front()
    probe = probe_engine(front.url, front.model, front.headers, front.protocol, deadline_s)
    if probe.layer_failed == "network" and not probe.refused:
        return {(name, "rack"): _unreachable(name, "rack", probe)}
    text = probe.message or f"first token after {probe.first_token_ms or 0.0:.0f} ms"
    return {(name, "rack"): _bool(name, "rack", probe.ok, text)}


def probe_cards(target: Target) -> Probes:
    """Return whether each card is listed by its node's exporter and gives the required signals."""
    import httpx

    found: Probes = {}
    with httpx.Client(timeout=2.0, trust_env=False) as client:
        for node in target.nodes:
            readings = _best_poll(client, node)
            for card in node.cards:
                mine = [one for one in readings if one.entity == card.name]
                found.update(_card_measurements(card.name, mine))
    return found


def _best_poll(client: httpx.Client, node: Node) -> list[Reading]:
    """Poll until the exporter answers, at most three times: one lost scrape is no lost card."""
    from rackgate.telemetry.sampler import poll_node

    readings = poll_node(client, node)
    for _ in range(_POLLS - 1):
        if any(one.value is not None for one in readings):
            break
        time.sleep(0.2)
        readings = poll_node(client, node)
    return readings


def _card_measurements(card: str, readings: list[Reading]) -> Probes:
    present, coverage = "card_present", "telemetry_coverage"
    if not any(one.value is not None for one in readings):
        first = readings[0]
        reason, detail = first.reason or Reason.ABSENT, first.detail
        seen = _bool(present, card, good=False, detail=detail)
        if reason is not Reason.ABSENT:
            seen = missing(present, card, "bool", reason, detail)
        return {(present, card): seen, (coverage, card): missing(coverage, card, "ratio", reason, detail)}
    lacking = [one for one in readings if one.field in REQUIRED and one.value is None]
    share = 1 - len(lacking) / len(REQUIRED)
    detail = "; ".join(f"{one.field}: {one.reason} ({one.detail})" for one in lacking)
    covered = Measurement(
        metric=coverage,
        entity=card,
        value=share,
        unit="ratio",
        count=len(REQUIRED),
        detail=detail,
        source="exporter",
    )
    return {
        (present, card): _bool(present, card, good=True, detail="listed by the exporter"),
        (coverage, card): covered,
    }


def _bool(metric: str, entity: str, good: bool, detail: str) -> Measurement:  # noqa: FBT001
    return Measurement(
        metric=metric, entity=entity, value=float(good), unit="bool", count=1, detail=detail, source="probe"
    )


def _unreachable(metric: str, entity: str, probe: EngineProbe) -> Measurement:
    nothing = missing(metric, entity, "bool", Reason.UNREACHABLE, f"{probe.layer_failed}: {probe.message}")
    return replace(nothing, source="probe")
