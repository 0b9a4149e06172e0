"""The `kubernetes` launcher: an engine as a Deployment and a Service of a cluster, gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from rackgate.engines.client import key_headers
from rackgate.engines.launchers.filling import (
    ENGINE_KEYS,
    IMAGE_KEYS,
    engine_problems,
)
from rackgate.engines.launchers.members import parts_of
from rackgate.engines.launchers.outcome import ended, log_end, redacted, start_refused
from rackgate.engines.launchers.pods.cluster import ClusterRefused, in_cluster, open_cluster
from rackgate.engines.launchers.pods.engine import EnginePod
from rackgate.engines.launchers.pods.manifests import PodPlan
from rackgate.engines.launchers.pods.plan import filled_settings, pod_plan
from rackgate.engines.launchers.ports import url_of
from rackgate.engines.launchers.progress import silent
from rackgate.engines.launchers.secrets import SECRET_KEYS, hidden_values
from rackgate.engines.launchers.settings import (
    TABLES,
    TEXT,
    TEXT_TABLE,
    WHOLE,
    Key,
    problems_of,
    size_bytes,
    tables,
    text,
)
from rackgate.engines.launchers.waiting import Start, check_protocol, ready_engine
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec

KEYS = {
    **ENGINE_KEYS,
    **IMAGE_KEYS,
    "env_from": SECRET_KEYS["env_from"],
    "secret_files": SECRET_KEYS["secret_files"],
    "health_path": Key(kind=TEXT),
    "kubeconfig": Key(kind=TEXT),
    "context": Key(kind=TEXT),
    "namespace": Key(kind=TEXT),
    "node_name": Key(kind=TEXT),
    "node_selector": Key(kind=TEXT_TABLE),
    "tolerations": Key(kind=TABLES),
    "pull_secret": Key(kind=TEXT),
    "runtime_class": Key(kind=TEXT),
    "gpus": Key(kind=WHOLE),
    "gpu_resource": Key(kind=TEXT),
    "service": Key(kind=TEXT, one_of=("NodePort", "ClusterIP")),
    "address": Key(kind=TEXT),
    "cpu": Key(kind=TEXT),
    "claims": Key(kind=TEXT_TABLE),
    "user": Key(kind=WHOLE),
}
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_WHAT = "deployment"


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a Kubernetes engine."""
    unknown = engine_problems(settings)
    if unknown:
        return unknown
    found = problems_of(filled_settings(settings), KEYS)
    for index, toleration in enumerate(tables(settings, "tolerations")):
        found += [
            f"tolerations[{index}]: unknown key {key!r}; valid: {', '.join(_TOLERATION)}"
            for key in toleration
            if key not in _TOLERATION
        ]
    size = settings.get("shm_size")
    if isinstance(size, str):
        with suppress(ValueError):
            size_bytes(size)
            size = None
        found += [f"'shm_size' must be a size such as '512m' or '1g', not {size!r}"] if size else []
    return found


@contextmanager
def kubernetes(
    spec: EngineSpec, *, run_id: str, log_dir: str, on_progress: Callable[[str], None] = silent
) -> Iterator[Engine]:
    """Yield the engine after its first token; on leaving, its objects are deleted and its log is kept.

    Raises `LaunchFailed` on entering: as soon as the cluster refuses or the pod ends, else at
    `ready_timeout_s`.
    """
    began = time.monotonic()
    headers = key_headers(spec)
    check_protocol(spec, parts_of(spec)[-1], _WHAT)
    plan = pod_plan(spec, run_id)
    try:
        cluster = open_cluster(text(spec.settings, "kubeconfig"), text(spec.settings, "context"))
    except ClusterRefused as error:
        raise start_refused(
            spec, _WHAT, str(error), "see `kubectl config view` and `kubectl get nodes`"
        ) from error
    pod, log_path = EnginePod(cluster, plan), Path(log_dir) / f"{spec.name}.log"
    try:
        start = Start(
            spec=spec,
            what=_WHAT,
            url=_created(spec, plan, pod, began, on_progress),
            headers=headers,
            parts={spec.name: pod},
            roles={spec.name: "engine"},
            began=began,
            ready_timeout_s=max(1.0, began + plan.ready_timeout_s - time.monotonic()),
            on_progress=on_progress,
            log_path=str(log_path),
            hidden=hidden_values(spec),
        )
        engine = ready_engine(start)
        yield replace(engine, image_digest=pod.state().image_id.rpartition("@")[2] or None)
    finally:
        with suppress(OSError):
            log = pod.logs().decode("utf-8", "replace")
            log_path.write_text(redacted(log, hidden_values(spec)), "utf-8")
        pod.remove(plan.stop_timeout_s + 30.0)
        cluster.close()


def _created(
    spec: EngineSpec, plan: PodPlan, pod: EnginePod, began: float, tell: Callable[[str], None]
) -> str:
    """Create the objects and return where the engine will answer; raises `LaunchFailed`."""
    try:
        pod.create()
        return _url(spec, plan, pod, began, tell)
    except ClusterRefused as error:
        hint = "see `kubectl auth can-i create deployments`, the namespace and its quota"
        raise start_refused(spec, _WHAT, str(error), hint) from error


def _url(spec: EngineSpec, plan: PodPlan, pod: EnginePod, began: float, tell: Callable[[str], None]) -> str:
    """Wait until the pod has a node and return where its Service answers, never through a port-forward."""
    address = text(spec.settings, "address")
    if plan.service == "ClusterIP":
        if not address and not in_cluster():
            raise ClusterRefused(
                "a ClusterIP service is not reached from outside the cluster, and a port-forward's latency "
                "would be UNKNOWN by rule: set service = 'NodePort', or run in the cluster"
            )
        return url_of(address or f"{plan.name}.{plan.namespace}.svc", plan.port)
    told = ""
    while time.monotonic() - began < plan.ready_timeout_s:
        why, state = pod.ended(), pod.state()
        if why:
            raise ended(spec, _WHAT, why, time.monotonic() - began, log_end(pod.tail(), hidden_values(spec)))
        if state.host_ip and (port := pod.node_port()):
            return url_of(address or state.host_ip, port)
        if state.waiting != told:
            told = state.waiting
            tell(f"{spec.name}: {told}")
        time.sleep(0.2)
    raise ClusterRefused(f"no node took the pod within {plan.ready_timeout_s} s")
