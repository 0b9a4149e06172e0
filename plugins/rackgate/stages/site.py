"""The site of a run: the target with its engines and gateway started or found, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from rackgate.engines.gateway import gateway_spec, unreachable, with_engines_behind
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.engine import CardKeeping, Engine, HeldBack, LaunchFailed
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.node import NodeAccess
from rackgate.nouns.target import GATEWAY, EngineSpec, Gateway, Target
from rackgate.run.run import Run

_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`target` with the addresses of this run; engines by entity; why the others did not come up.

    `failures` has the gateway too, under its entity, if it was to be started and did not come up.
    """

    target: Target
    engines: Mapping[str, Engine]
    failures: Mapping[str, LaunchFailed] = field(default_factory=dict)

    @property
    def process_groups(self) -> frozenset[int]:
        """Process groups of the engines that this run started as processes of this machine."""
        from rackgate.engines.launchers.processes.engine import EngineProcess

        handles = (engine.handle for engine in self.engines.values())
        return frozenset(handle.pid for handle in handles if isinstance(handle, EngineProcess))

    def qualified(self, run: Run, stage: str) -> list[Engine]:
        """Return the engines that came up and are not quarantined before `stage`."""
        out = run.ledger.quarantined(stage)
        return [engine for entity, engine in self.engines.items() if entity not in out]

    def endpoint(self, engine: Engine) -> Endpoint:
        """Return the endpoint of one engine."""
        from rackgate.nouns.endpoint import Endpoint

        return Endpoint(
            entity=engine.entity,
            url=engine.url,
            model=engine.spec.model,
            protocol=engine.spec.protocol,
            headers=engine.headers,
            served_by=dict.fromkeys(engine.spec.served_by, engine.entity),
            engine=engine.entity,
            route=engine.spec.route,
        )

    def front(self, run: Run, stage: str) -> list[Endpoint]:
        """Return the endpoints of users: the gateway, or without one every engine that is not quarantined.

        Empty if the target's gateway did not come up.
        """
        if self.target.gateway is None:
            return [self.endpoint(engine) for engine in self.qualified(run, stage)]
        gateway = self.gateway()
        return [gateway] if gateway else []

    def gateway(self) -> Endpoint | None:
        """Return the endpoint of the gateway; None if the target has none, or it did not come up."""
        from rackgate.engines.client import key_headers
        from rackgate.nouns.endpoint import Endpoint

        gateway = self.target.gateway
        if gateway is None or gateway.url is None:
            return None
        names: dict[str, str] = {}
        for spec in self.target.engines:
            names.update(
                {spec.name: spec.entity, spec.entity: spec.entity, spec.url or spec.name: spec.entity}
            )
            names.update(dict.fromkeys(spec.served_by, spec.entity))
        keyed = replace(self.target.engines[0], api_key_env=gateway.api_key_env, route=gateway.route)
        return Endpoint(
            entity=GATEWAY,
            url=gateway.url,
            model=self.target.model,
            protocol=keyed.protocol,
            headers=key_headers(keyed),
            served_by_header=gateway.served_by_header,
            served_by=names,
            route=gateway.route,
        )


@contextmanager
def open_site(run: Run, *, scenario: str, seed: int) -> Iterator[Site]:
    """Start or find every engine of the target, then its gateway; end all that were started on leaving."""
    if any(spec.launcher == "simulated" for spec in run.target.engines):
        with _simulated(run, scenario, seed) as site:
            yield site
        return
    engines: dict[str, Engine] = {}
    failures: dict[str, LaunchFailed] = {}
    _sweep(run)
    with ExitStack() as stack:
        for spec in run.target.engines:
            _launch(run, spec, stack, engines, failures)
            if spec.entity in engines:
                _record_cold_start(run, engines[spec.entity])
        gateway = _launch_gateway(run, stack, engines, failures)
        here = replace(run.target, engines=_with_addresses(run.target, engines), gateway=gateway)
        run.cards_lost = partial(_cards_lost, engines)
        yield Site(
            target=here,
            engines={entity: engine for entity, engine in engines.items() if entity != GATEWAY},
            failures=failures,
        )
    for engine in engines.values():
        _record(
            run, engine.spec, state="stopped" if engine.spec.launcher != "remote" else "left", url=engine.url
        )


def _cards_lost(engines: Mapping[str, Engine]) -> dict[str, str]:
    """Return the engines that lost their cards, and how; all are asked at once."""
    asked = {name: one.handle for name, one in engines.items() if isinstance(one.handle, CardKeeping)}
    with ThreadPoolExecutor(max_workers=max(1, min(_WIDTH, len(asked)))) as pool:
        told = pool.map(lambda handle: handle.cards_lost(), asked.values())
        return {name: text for name, text in zip(asked, told, strict=True) if text}


def _with_addresses(target: Target, engines: Mapping[str, Engine]) -> tuple[EngineSpec, ...]:
    return tuple(
        replace(spec, url=engines[spec.entity].url, metrics=engines[spec.entity].spec.metrics)
        if spec.entity in engines
        else spec
        for spec in target.engines
    )


def _launch_gateway(
    run: Run, stack: ExitStack, engines: dict[str, Engine], failures: dict[str, LaunchFailed]
) -> Gateway | None:
    """Start the gateway in front of the engines that came up; return it with its address in this run."""
    gateway, spec = run.target.gateway, gateway_spec(run.target)
    if gateway is None or spec is None:
        return gateway
    problem, hint = unreachable(spec, engines), "set network = 'host' for it, or bind_address for the engines"
    if not engines:
        problem, hint = "no engine came up", "see the engines first"
    if problem:
        reason = f"{spec.title}: it was not started: {problem}"
        _failed(run, spec, LaunchFailed(reason, layer="service", hint=hint), failures)
    else:
        _launch(run, with_engines_behind(spec, run.target, engines), stack, engines, failures)
    return replace(gateway, url=engines[GATEWAY].url if GATEWAY in engines else None)


def _sweep(run: Run) -> None:
    """End leftovers of dead runs of this user, which would share the cards with this run; record each."""
    if gateway_spec(run.target) is None and all(spec.launcher == "remote" for spec in run.target.engines):
        return
    from rackgate.engines.leftovers.leftovers import find_leftovers, remove

    for left in find_leftovers():
        ended = "it was ended" if remove(left) else "it could not be ended"
        whose = f"engine {left.engine} of run {left.run_id} (its pid was {left.owner_pid})"
        text = f"left over: {whose}: {left.detail}; {ended}"
        run.event("leftover", text)
        run.notes.append(run.log.redactor.redact(text))
        run.say(text)


def _launch(
    run: Run,
    spec: EngineSpec,
    stack: ExitStack,
    engines: dict[str, Engine],
    failures: dict[str, LaunchFailed],
) -> None:
    held = _held(run, spec)
    if held is not None:
        _failed(run, spec, held, failures)
        return
    run.say(f"{spec.title}: {spec.launcher}, waiting for a token")
    launcher = run.registry.launchers[spec.launcher]
    try:
        engine = stack.enter_context(
            launcher(
                spec, run_id=run.log.run_id, log_dir=str(run.evidence / "logs"), on_progress=run.progress.say
            )
        )
    except LaunchFailed as failure:
        _failed(run, spec, failure, failures)
        return
    engines[spec.entity] = engine
    _record(
        run, spec, state="ready", url=engine.url, cold_start_s=engine.cold_start_s, image=engine.image_digest
    )


def _held(run: Run, spec: EngineSpec) -> HeldBack | None:
    """Return why an engine is not started: preflight found its host unable to run it."""
    if spec.launcher == "remote":
        return None
    places = [(node, "driver") for node in spec.nodes]
    if spec.launcher == "container":
        places += [(f"{node} container", "container") for node in spec.nodes]
    by, layer = next(((run.held[place], layer) for place, layer in places if place in run.held), ("", ""))
    if not by:
        return None
    hint = "see the check of the host first: an engine's start would only repeat what it says"
    return HeldBack(f"{spec.title}: it was not started: {by} FAIL", by=by, layer=layer, hint=hint)


def _failed(run: Run, spec: EngineSpec, failure: LaunchFailed, failures: dict[str, LaunchFailed]) -> None:
    failures[spec.entity] = failure
    _record(run, spec, state="failed", layer=failure.layer, message=str(failure), hint=failure.hint)


@contextmanager
def _simulated(run: Run, scenario: str, seed: int) -> Iterator[Site]:
    from rackgate.simulator.rack import start_rack
    from rackgate.simulator.settings import RackSettings

    declared = {int(card.name.split("/gpu")[1]) for card in run.target.cards}
    nodes = max(int(node.name.removeprefix("node")) for node in run.target.nodes)
    settings = RackSettings(nodes=nodes, cards=max(declared) + 1, scenario=scenario, seed=seed)
    run.say(f"simulated rack {settings.nodes}x{settings.cards}, scenario {scenario}: starting")
    with start_rack(settings, log_dir=run.evidence / "logs") as rack:
        kept = {spec.entity for spec in run.target.engines}
        engines = {engine.entity: engine for engine in rack.engines if engine.entity in kept}
        for engine in engines.values():
            _record(run, engine.spec, state="ready", url=engine.url)
        here = replace(
            run.target,
            nodes=tuple(
                replace(node, exporter_url=live.exporter_url, access=_reached(node.access, live.access))
                for node in run.target.nodes
                for live in rack.target.nodes
                if live.name == node.name
            ),
            engines=tuple(engine.spec for engine in engines.values()),
            gateway=rack.target.gateway,
        )
        yield Site(target=here, engines=engines)


def _reached(asked: NodeAccess, live: NodeAccess) -> NodeAccess:
    """Return the node's access in this run, with the address of the controller that came up."""
    return replace(asked, redfish=live.redfish)


def _record(run: Run, spec: EngineSpec, **payload: object) -> None:
    run.record(
        "engine", engine=spec.name, entity=spec.entity, launcher=spec.launcher, model=spec.model, **payload
    )


def _record_cold_start(run: Run, engine: Engine) -> None:
    """Record how long the start took; nothing for an engine that was found running."""
    if engine.cold_start_s is None:
        return
    value = Measurement(
        metric="cold_start_s",
        entity=engine.entity,
        value=engine.cold_start_s,
        unit="s",
        count=1,
        source=engine.spec.launcher,
    )
    run.record(
        "measurement",
        stage="start",
        load="",
        statistic="value",
        definition="start of the engine to its first token",
        headline=False,
        **asdict(value),
    )
