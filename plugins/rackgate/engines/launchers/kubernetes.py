"""The `kubernetes` launcher: an engine as a Deployment and a Service of a cluster, gone afterwards."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rackgate.engines.launchers.boxes import size_bytes
from rackgate.engines.launchers.cluster import ClusterRefused, in_cluster, open_cluster
from rackgate.engines.launchers.engine_pod import EnginePod
from rackgate.engines.launchers.filling import (
    ENGINE_KEYS,
    engine_problems,
    entry_of,
    filled_environment,
    filled_in,
    placeholders,
    with_defaults,
)
from rackgate.engines.launchers.manifests import LAUNCH_LABEL, PodPlan, label_value
from rackgate.engines.launchers.members import parts_of
from rackgate.engines.launchers.outcome import ended, key_headers, log_end, redacted, start_refused
from rackgate.engines.launchers.ports import url_of
from rackgate.engines.launchers.progress import silent
from rackgate.engines.launchers.secrets import SECRET_KEYS, SecretMissing, hidden_values, read_secrets
from rackgate.engines.launchers.settings import (
    NUMBER,
    PORT,
    TABLES,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    WHOLE,
    Key,
    number,
    problems_of,
    tables,
    text,
    text_table,
    texts,
    whole,
)
from rackgate.engines.launchers.waiting import Start, check_protocol, ready_engine
from rackgate.engines.leftovers import owner_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rackgate.engine import Engine
    from rackgate.target import EngineSpec

__all__ = ["KEYS", "check_settings", "kubernetes"]

KEYS = {
    **ENGINE_KEYS,
    "env_from": SECRET_KEYS["env_from"],
    "secret_files": SECRET_KEYS["secret_files"],
    "image": Key(kind=TEXT, required=True),
    "command": Key(kind=TEXTS),
    "entrypoint": Key(kind=TEXTS),
    "env": Key(kind=TEXT_TABLE),
    "port": Key(kind=PORT),
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
    "shm_size": Key(kind=TEXT),
    "memory": Key(kind=TEXT),
    "cpu": Key(kind=TEXT),
    "claims": Key(kind=TEXT_TABLE),
    "user": Key(kind=WHOLE),
    "pull": Key(kind=TEXT, one_of=("never", "missing", "always")),
    "stop_timeout_s": Key(kind=NUMBER),
}
READY_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 30.0
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_WHAT = "deployment"


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a Kubernetes engine."""
    unknown = engine_problems(settings)
    if unknown:
        return unknown
    found = problems_of(_filled(settings), KEYS)
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


def _filled(settings: Mapping[str, object], cards: int = 0) -> dict[str, object]:
    """Return the table with the catalogue's defaults; a pod has a memory volume in place of an IPC mode."""
    filled = with_defaults(settings, boxed=True, cards=cards)
    return {key: value for key, value in filled.items() if key in settings or key not in ("ipc", "ulimits")}


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
    plan = _plan(spec, run_id)
    try:
        cluster = open_cluster(text(spec.settings, "kubeconfig"), text(spec.settings, "context"))
    except ClusterRefused as error:
        raise start_refused(
            spec, _WHAT, str(error), "see `kubectl config view` and `kubectl get nodes`"
        ) from error
    pod, log_path = EnginePod(cluster, plan), Path(log_dir) / f"{spec.name}.log"
    try:
        try:
            pod.create()
            url = _url(spec, plan, pod, began, on_progress)
        except ClusterRefused as error:
            hint = "see `kubectl auth can-i create deployments`, the namespace and its quota"
            raise start_refused(spec, _WHAT, str(error), hint) from error
        engine = ready_engine(
            Start(
                spec=spec,
                what=_WHAT,
                url=url,
                headers=headers,
                parts={spec.name: pod},
                roles={spec.name: "engine"},
                began=began,
                ready_timeout_s=max(1.0, began + plan.ready_timeout_s - time.monotonic()),
                on_progress=on_progress,
                log_path=str(log_path),
                hidden=hidden_values(spec),
            )
        )
        yield replace(engine, image_digest=pod.state().image_id.rpartition("@")[2] or None)
    finally:
        with suppress(OSError):
            log = pod.logs().decode("utf-8", "replace")
            log_path.write_text(redacted(log, hidden_values(spec)), "utf-8")
        pod.remove(plan.stop_timeout_s + 30.0)
        cluster.close()


def _plan(spec: EngineSpec, run_id: str) -> PodPlan:
    settings = _filled(spec.settings, len(spec.cards))
    try:
        secrets = read_secrets(spec)
    except SecretMissing as error:
        raise start_refused(spec, _WHAT, str(error), error.hint) from error
    token = uuid.uuid4().hex[:12]
    port = whole(settings, "port", 8000)
    values = placeholders(spec, "0.0.0.0", port)
    entry = entry_of(settings)
    health = text(settings, "health_path") or (entry.health_path if entry else "") or "/health"
    name = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40]
    return PodPlan(
        name=f"rackgate-{name}-{token}",
        namespace=text(settings, "namespace", "default") or "default",
        labels={
            "app.kubernetes.io/managed-by": "rackgate",
            LAUNCH_LABEL: token,
            "rackgate.io/run": label_value(run_id),
        },
        annotations={
            label.replace("rackgate.", "rackgate.io/"): value
            for label, value in owner_labels(run_id, spec.name, token).items()
        },
        image=text(settings, "image") or "",
        pull=text(settings, "pull", "never") or "never",
        port=port,
        health_path=health,
        arguments=tuple(filled_in(texts(settings, "command"), values)),
        entrypoint=texts(settings, "entrypoint"),
        environment=filled_environment(settings, values),
        secrets=secrets.values,
        gpus=whole(settings, "gpus", len(spec.cards)),
        gpu_resource=text(settings, "gpu_resource", "nvidia.com/gpu") or "",
        node_name=text(settings, "node_name") or "",
        node_selector=text_table(settings, "node_selector"),
        tolerations=tables(settings, "tolerations"),
        pull_secret=text(settings, "pull_secret") or "",
        runtime_class=text(settings, "runtime_class") or "",
        service=text(settings, "service") or ("ClusterIP" if in_cluster() else "NodePort"),
        shm_bytes=size_bytes(text(settings, "shm_size", "1g") or "1g"),
        memory=text(settings, "memory") or "",
        cpu=text(settings, "cpu") or "",
        claims=text_table(settings, "claims"),
        user=whole(settings, "user", 1000),
        ready_timeout_s=round(number(settings, "ready_timeout_s", READY_TIMEOUT_S)),
        stop_timeout_s=round(number(settings, "stop_timeout_s", STOP_TIMEOUT_S)),
    )


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
