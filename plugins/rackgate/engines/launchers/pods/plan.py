"""From a target's engine to the plan of its pod."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace

from rackgate.engines.catalogue import kind_of
from rackgate.engines.launch_records import owner_labels
from rackgate.engines.launchers.filling import (
    filled_environment,
    filled_in,
    placeholders,
    with_defaults,
)
from rackgate.engines.launchers.outcome import start_refused
from rackgate.engines.launchers.pods.cluster import in_cluster
from rackgate.engines.launchers.pods.manifests import LAUNCH_LABEL, PodPlan, label_value
from rackgate.engines.launchers.secrets import SecretMissing, read_secrets
from rackgate.engines.launchers.settings import number, size_bytes, tables, text, text_table, texts, whole
from rackgate.nouns.target import EngineSpec

READY_TIMEOUT_S = 1800.0
STOP_TIMEOUT_S = 30.0


def filled_settings(settings: Mapping[str, object], cards: int = 0) -> dict[str, object]:
    """Return the table with the catalogue's defaults; a pod has a memory volume in place of an IPC mode."""
    filled = with_defaults(settings, in_container=True, cards=cards)
    return {key: value for key, value in filled.items() if key in settings or key not in ("ipc", "ulimits")}


def pod_plan(spec: EngineSpec, run_id: str) -> PodPlan:
    """Return the plan of the engine's pod; raises `LaunchFailed` for a secret that is not there."""
    settings = filled_settings(spec.settings, len(spec.cards))
    try:
        secrets = read_secrets(spec)
    except SecretMissing as error:
        raise start_refused(spec, "deployment", str(error), error.hint) from error
    token = uuid.uuid4().hex[:12]
    port = whole(settings, "port", 8000)
    values = placeholders(spec, "0.0.0.0", port)
    entry = kind_of(settings)
    name = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:40]
    facts = owner_labels(run_id, spec.name, token)
    plan = PodPlan(
        name=f"rackgate-{name}-{token}",
        namespace=text(settings, "namespace", "default") or "default",
        labels={
            "app.kubernetes.io/managed-by": "rackgate",
            LAUNCH_LABEL: token,
            "rackgate.io/run": label_value(run_id),
        },
        annotations={label.replace("rackgate.", "rackgate.io/"): value for label, value in facts.items()},
        image=text(settings, "image") or "",
        pull=text(settings, "pull", "never") or "never",
        port=port,
        health_path=text(settings, "health_path") or (entry.health_path if entry else "") or "/health",
        arguments=tuple(filled_in(texts(settings, "command"), values)),
        entrypoint=texts(settings, "entrypoint"),
        environment=filled_environment(settings, values),
        secrets=secrets.values,
        ready_timeout_s=round(number(settings, "ready_timeout_s", READY_TIMEOUT_S)),
        stop_timeout_s=round(number(settings, "stop_timeout_s", STOP_TIMEOUT_S)),
    )
    return _placed(plan, settings, len(spec.cards))


def _placed(plan: PodPlan, settings: Mapping[str, object], cards: int) -> PodPlan:
    """Return the plan with where the pod goes and what it gets there."""
    return replace(
        plan,
        gpus=whole(settings, "gpus", cards),
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
    )
