"""Engines and gateway before any load: reachable, model served, first token, API answers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rackgate.engines.api_smoke import SMOKE, Shown, smoke_api
from rackgate.engines.client import key_headers
from rackgate.engines.probe import EngineProbe, probe_engine
from rackgate.engines.protocols.protocol import protocol_named
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.engine import HeldBack, LaunchFailed
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason, missing, truth
from rackgate.nouns.target import GATEWAY, EngineSpec, Target

_DEADLINE_S = 15.0


def probe_engines(
    target: Target, failures: Mapping[str, LaunchFailed], deadline_s: float = _DEADLINE_S
) -> ProbeResults:
    """Return whether each engine is reachable, serves the model and gives a token.

    An engine that cannot be reached over the network is UNKNOWN, not FAIL. An engine that did not come up
    FAILs with its own message and hint.
    """

    def look(spec: EngineSpec) -> EngineProbe:
        return probe_engine(
            spec.url or "", spec.model, key_headers(spec), spec.protocol, deadline_s, route=spec.route
        )

    found: ProbeResults = {}
    there = [spec for spec in target.engines if spec.url]
    with ThreadPoolExecutor(max_workers=16) as pool:
        for spec, probe in zip(there, pool.map(look, there), strict=True):
            found.update(_engine_measurements(spec, probe))
    for spec in target.engines:
        if not spec.url:
            found.update(_never_up(spec, failures.get(spec.entity)))
    return found


def probe_apis(target: Target, known: ProbeResults, deadline_s: float = _DEADLINE_S) -> ProbeResults:
    """Return what the API of each engine answers and refuses.

    An engine that gave no token in `known` has no value, for the reason of its first request.
    """

    def ask(spec: EngineSpec) -> dict[str, Shown]:
        first = known["first_request_ok", spec.entity]
        if not first.value:
            reason = first.reason or Reason.DIED
            return dict.fromkeys(SMOKE, Shown(None, f"no token came out: {first.detail}", reason))
        headers = key_headers(spec)
        return smoke_api(
            spec.url or "", spec.model, headers, offers=spec.offers, route=spec.route, deadline_s=deadline_s
        )

    asked = [spec for spec in target.engines if protocol_named(spec.protocol).dialect.chats]
    found: ProbeResults = {}
    with ThreadPoolExecutor(max_workers=16) as pool:
        for spec, answers in zip(asked, pool.map(ask, asked), strict=True):
            for name, shown in answers.items():
                found[name, spec.entity] = (
                    missing(name, spec.entity, "bool", shown.reason or Reason.ABSENT, shown.text)
                    if shown.holds is None
                    else truth(name, spec.entity, shown.holds, shown.text)
                )
    return found


def _never_up(spec: EngineSpec, failure: LaunchFailed | None) -> ProbeResults:
    entity = spec.entity
    if isinstance(failure, HeldBack):
        return {
            (name, entity): missing(name, entity, "bool", Reason.GATED, str(failure), hint=failure.hint)
            for name in ("engine_reachable", "model_served", "first_request_ok")
        }
    text, hint = (f"{failure.layer}: {failure}", failure.hint) if failure else ("never started", "")
    found = {("engine_reachable", entity): truth("engine_reachable", entity, False, text, hint)}
    for name in ("model_served", "first_request_ok"):
        found[name, entity] = missing(name, entity, "bool", Reason.DIED, text, hint=hint)
    return found


def _engine_measurements(spec: EngineSpec, probe: EngineProbe) -> ProbeResults:
    entity = spec.entity
    if probe.layer_failed == "network":
        found = {
            (name, entity): _unreachable(name, entity, probe)
            for name in ("engine_reachable", "model_served", "first_request_ok")
        }
        if probe.refused:
            name = "engine_reachable"
            found[name, entity] = truth(name, entity, False, probe.message, probe.hint)
        return found
    found = {("engine_reachable", entity): truth("engine_reachable", entity, True, probe.message)}
    if probe.served_models is None:
        text = probe.message or f"{spec.url} does not list its models"
        nothing = missing("model_served", entity, "bool", Reason.UNSUPPORTED, text, hint=probe.hint)
        found["model_served", entity] = nothing
    else:
        listed = ", ".join(probe.served_models) or "nothing"
        text = f"asked {spec.model}, listed: {listed}"
        found["model_served", entity] = truth("model_served", entity, spec.model in probe.served_models, text)
    found["first_request_ok", entity] = _first_request("first_request_ok", entity, probe)
    return found


def _first_request(name: str, entity: str, probe: EngineProbe) -> Measurement:
    if probe.ok:
        return truth(name, entity, True, f"first token after {probe.first_token_ms or 0.0:.0f} ms")
    return truth(name, entity, False, f"{probe.layer_failed}: {probe.message}", probe.hint)


def probe_gateway(
    gateway: Endpoint | None, failures: Mapping[str, LaunchFailed], deadline_s: float = _DEADLINE_S
) -> ProbeResults:
    """Return whether one request through the gateway gives a token; nothing if no gateway is declared.

    A gateway that did not come up FAILs with its own message and hint.
    """
    name, failure = "gateway_request_ok", failures.get(GATEWAY)
    if failure is not None:
        return {(name, "rack"): truth(name, "rack", False, f"{failure.layer}: {failure}", failure.hint)}
    if gateway is None:
        return {}
    probe = probe_engine(
        gateway.url, gateway.model, gateway.headers, gateway.protocol, deadline_s, route=gateway.route
    )
    if probe.layer_failed == "network" and not probe.refused:
        return {(name, "rack"): _unreachable(name, "rack", probe)}
    return {(name, "rack"): _first_request(name, "rack", probe)}


def _unreachable(metric: str, entity: str, probe: EngineProbe) -> Measurement:
    text = f"{probe.layer_failed}: {probe.message}"
    nothing = missing(metric, entity, "bool", Reason.UNREACHABLE, text, hint=probe.hint)
    return replace(nothing, source="probe")
