"""One query to each source of a rack: cards, host, tools, kernel log, chassis, engines, gateway."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rackgate.discovery.services import listed_models
from rackgate.engines.gateway import gateway_spec
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import Command
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.nouns.route import Route
from rackgate.nouns.target import EngineSpec, LoadMachines, Target
from rackgate.telemetry.assembly import card_source_of, chassis_source_of, kernel_log_of, plan_of, runner_of
from rackgate.telemetry.kernel.event_history import EventBook
from rackgate.telemetry.reading import CHASSIS_FIELDS, Reading
from rackgate.telemetry.sampler import polled
from rackgate.telemetry.source import ListsCards

if TYPE_CHECKING:
    import httpx


_POLLS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether an engine, a gateway or a load machine is ready; `text` is the obstacle, `cure` removes it.

    `refused`: its host answers and nothing listens at the port. `answered`: it responded to the request for
    its models. `unlisted`: it does not list models. `served`: the models that it lists.
    """

    ok: bool
    text: str = ""
    cure: str = ""
    refused: bool = False
    answered: bool = False
    unlisted: bool = False
    served: tuple[str, ...] | None = None


def query_cards(node: Node, target: Target) -> tuple[tuple[Reading, ...], tuple[ListedCard, ...] | None]:
    """Return one poll of a node's cards, or a second one if the first is silent; and the listed cards."""
    with closing(card_source_of(node, plan_of(target))) as source:
        for _ in range(_POLLS):
            readings = polled(source)
            if any(reading.value is not None for reading in readings):
                break
        return tuple(readings), source.listed() if isinstance(source, ListsCards) else None


def query_host(node: Node, target: Target, limit_s: float) -> dict[str, Fact]:
    """Return the facts of a node's host; none if the target gives no way into it."""
    runner = runner_of(node.name, node.access, plan_of(target))
    if runner is None:
        return {}
    with closing(runner):
        return read_host(runner, limit_s)


def query_tools(node: Node, target: Target, tools: Iterable[str], limit_s: float) -> dict[str, str | None]:
    """Return the path of each program on a node, None if not on the PATH; empty if the host is closed."""
    runner = runner_of(node.name, node.access, plan_of(target))
    if runner is None:
        return {}
    paths: dict[str, str | None] = {}
    with closing(runner):
        for name in tools:
            line = f"command -v {shlex.quote(name)}"
            ran = runner.run(Command(argv=("sh", "-c", line)), limit_s)
            if ran.reason in (Reason.TIMEOUT, Reason.UNREACHABLE):
                break
            paths[name] = ran.text.strip() or None
    return paths


def query_kernel_log(node: Node, target: Target) -> tuple[EventBook, str] | None:
    """Return a node's kernel log, and the reason why it cannot be read ("" if it can)."""
    log = kernel_log_of(node, node.access, plan_of(target))
    if log is None:
        return None
    with closing(log):
        for _ in range(_POLLS):  # the second poll completes a message that the end of the first one cut
            log.poll()
        return log.book, log.problem


def query_chassis(node: Node, limit_s: float) -> tuple[Reading, ...]:
    """Return one poll of a node's chassis, after the login."""
    redfish = node.access.redfish
    if redfish is None:
        return ()
    unset = [name for name in (redfish.user_env, redfish.password_env) if not os.environ.get(name)]
    if unset:
        text = f"the variable {' and '.join(unset)} is not set"
        now_ns = time.perf_counter_ns()
        return tuple(
            Reading(now_ns, node.name, node.name, name, None, Reason.NO_PERMISSION, text)
            for name in CHASSIS_FIELDS
        )
    with closing(chassis_source_of(node.name, redfish, timeout_s=limit_s, sensors_s=limit_s / 2)) as source:
        return tuple(polled(source))


def query_engine(spec: EngineSpec, target: Target, limit_s: float) -> Readiness:
    """Return whether an engine lists its model, or everything that its start needs is here."""
    if spec.launcher == "simulated":
        return Readiness(ok=True, text="made by the run itself")
    unset = _unset_key(spec.api_key_env)
    if unset is not None:
        return unset
    if spec.launcher == "remote" and spec.url is not None:
        return _listing(spec.url, spec.model, spec.api_key_env, spec.protocol, limit_s, spec.route)
    return _startable(spec, target)


def query_gateway(target: Target, limit_s: float) -> Readiness:
    """Return whether the gateway lists the target's model, or everything that its start needs is here."""
    gateway, spec = target.gateway, gateway_spec(target)
    if spec is not None:
        return query_engine(spec, target, limit_s)
    if gateway is None or gateway.url is None:
        return Readiness(ok=gateway is not None, text="made by the run itself")
    unset = _unset_key(gateway.api_key_env)
    protocol = target.engines[0].protocol if target.engines else "openai"
    return unset or _listing(gateway.url, target.model, gateway.api_key_env, protocol, limit_s, gateway.route)


def query_load_machines(machines: LoadMachines) -> Readiness:
    """Return whether Ray is installed here and the cluster of the load machines answers."""
    from rackgate.loadgen.remote.relay import NoLoadMachines, check_machines

    try:
        check_machines(machines)
    except NoLoadMachines as error:
        text, _, cure = str(error).rpartition(": ")
        return Readiness(ok=False, text=text, cure=cure)
    return Readiness(ok=True)


def _unset_key(name: str | None) -> Readiness | None:
    if name is None or os.environ.get(name):
        return None
    text = f"the variable {name} is not set"
    return Readiness(ok=False, text=text, cure=f"export {name} with the key")


def _listing(
    url: str, model: str, key_env: str | None, protocol: str, limit_s: float, route: Route
) -> Readiness:
    import httpx

    headers = {"authorization": f"Bearer {os.environ[key_env]}"} if key_env else {}
    try:
        served = listed_models(url.rstrip("/"), headers, protocol, limit_s, route)
    except httpx.HTTPStatusError as error:
        return _error_status(url, error.response)
    except httpx.TimeoutException:
        text = f"{url} did not answer within {limit_s:g} s"
        cure = "see the engine's log: it still loads, or hangs; and the route to it"
        return Readiness(ok=False, text=text, cure=cure)
    except httpx.HTTPError as error:
        refused = "refused" in str(error)
        said = "nothing listens there" if refused else str(error) or type(error).__name__
        cure = "start what should listen there, or correct its url in the target"
        return Readiness(ok=False, text=f"{url}: {said}", cure=cure, refused=refused)
    if served and model not in served:
        text = f"{url} lists {', '.join(served[:4])}, not {model}"
        cure = f"set `model` in the target to a listed name, or serve {model}"
        return Readiness(ok=False, text=text, cure=cure, answered=True, served=served)
    if not served:
        return Readiness(ok=True, text=f"{url} does not list its models", answered=True, unlisted=True)
    return Readiness(ok=True, answered=True, served=served)


def _error_status(url: str, answer: httpx.Response) -> Readiness:
    status = answer.status_code
    if status == 404:  # it serves without a list: only the first request shows its model
        text = f"{url} does not list its models"
        return Readiness(ok=True, text=text, answered=True, unlisted=True)
    key_refused = status in (401, 403)
    return Readiness(
        ok=False,
        text=f"{url} answered {status}",
        cure="name the variable of a valid key in api_key_env, and export it"
        if key_refused
        else "see the engine's log",
        answered=True,
    )


def _startable(spec: EngineSpec, target: Target) -> Readiness:
    from rackgate.engines.bundle import needs_of

    needs = needs_of(replace(target, engines=(spec,), gateway=None, batch=None))
    for need in needs:
        lacking = need.here is False or (need.here is None and spec.launcher == "container")
        if need.wanted_by != "rackgate" and lacking and "on another machine" not in need.detail:
            text = f"{need.kind} {need.name} is not here: {need.detail}"
            cure = need.detail if need.kind == "image" else f"bring {need.kind} {need.name} here"
            return Readiness(ok=False, text=text, cure=cure)
    return Readiness(ok=True, text=f"launcher {spec.launcher} has what it needs")
