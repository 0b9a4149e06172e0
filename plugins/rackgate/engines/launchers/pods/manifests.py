"""What the kubernetes launcher asks the cluster for: manifests as plain data, by pure functions."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAUNCH_LABEL = "rackgate.io/launch"
_CONTAINER = "engine"
_SHARED_MEMORY, _SCRATCH = "/dev/shm", "/tmp"  # noqa: S108  paths in the pod's own volumes
_PULL = {"never": "Never", "missing": "IfNotPresent", "always": "Always"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """One engine in a cluster. `name` is a DNS label; the secrets' values are in no representation."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    image: str
    pull: str
    port: int
    health_path: str
    arguments: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, object], ...] = ()
    pull_secret: str = ""
    runtime_class: str = ""
    service: str = "NodePort"
    shm_bytes: int = 2**30
    memory: str = ""
    cpu: str = ""
    claims: Mapping[str, str] = field(default_factory=dict)
    user: int = 1000
    ready_timeout_s: int = 900
    stop_timeout_s: int = 30


def label_value(text: str) -> str:
    """Return the text as a label's value: at most 63 letters, digits and, but at its ends, `-_.`."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def deployment_of(plan: PodPlan) -> dict[str, Any]:
    """Return the Deployment: one pod that the restricted profile lets in, replaced and never doubled."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(plan),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": plan.ready_timeout_s + 60,
            "selector": {"matchLabels": _selector(plan)},
            "template": {
                "metadata": {"labels": dict(plan.labels), "annotations": dict(plan.annotations)},
                "spec": _pod(plan),
            },
        },
    }


def service_of(plan: PodPlan) -> dict[str, Any]:
    """Return the Service; it leads to the pod before it is ready, since only a token tells readiness."""
    spec: dict[str, Any] = {
        "type": plan.service,
        "selector": _selector(plan),
        "ports": [{"name": "http", "port": plan.port, "targetPort": plan.port, "protocol": "TCP"}],
        "publishNotReadyAddresses": True,
    }
    if plan.service == "NodePort":
        # Without this a node may pass the request on to another node, which a latency would show.
        spec["externalTrafficPolicy"] = "Local"
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(plan), "spec": spec}


def secret_of(plan: PodPlan) -> dict[str, Any] | None:
    """Return the Secret that the pod's variables refer to; None for an engine without secrets."""
    if not plan.secrets:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _metadata(plan),
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in plan.secrets.items()},
    }


def _metadata(plan: PodPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "namespace": plan.namespace,
        "labels": dict(plan.labels),
        "annotations": dict(plan.annotations),
    }


def _selector(plan: PodPlan) -> dict[str, str]:
    return {LAUNCH_LABEL: plan.labels[LAUNCH_LABEL]}


def _pod(plan: PodPlan) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # Variables such as VLLM_PORT that a service named vllm would bring are read by the engine itself.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": plan.stop_timeout_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": plan.user,
            "fsGroup": plan.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(plan)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(plan.shm_bytes)}},
            {"name": "tmp", "emptyDir": {}},
            *(
                {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
                for index, claim in enumerate(plan.claims)
            ),
        ],
    }
    if plan.node_name:
        # By affinity and not by nodeName, which would pass the scheduler and its count of cards by.
        field_is = {"key": "metadata.name", "operator": "In", "values": [plan.node_name]}
        required = {"nodeSelectorTerms": [{"matchFields": [field_is]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if plan.node_selector:
        pod["nodeSelector"] = dict(plan.node_selector)
    if plan.tolerations:
        pod["tolerations"] = [dict(toleration) for toleration in plan.tolerations]
    if plan.pull_secret:
        pod["imagePullSecrets"] = [{"name": plan.pull_secret}]
    if plan.runtime_class:
        pod["runtimeClassName"] = plan.runtime_class
    return pod


def _container(plan: PodPlan) -> dict[str, Any]:
    limits = {plan.gpu_resource: str(plan.gpus)} if plan.gpus else {}
    limits |= {"memory": plan.memory} if plan.memory else {}
    limits |= {"cpu": plan.cpu} if plan.cpu else {}
    container: dict[str, Any] = {
        "name": _CONTAINER,
        "image": plan.image,
        "imagePullPolicy": _PULL[plan.pull],
        "ports": [{"name": "http", "containerPort": plan.port, "protocol": "TCP"}],
        "env": _environment(plan),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {
            "httpGet": {"path": plan.health_path, "port": "http"},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": [
            {"name": "shm", "mountPath": _SHARED_MEMORY},
            {"name": "tmp", "mountPath": _SCRATCH},
            *(
                {"name": f"claim-{index}", "mountPath": path, "readOnly": True}
                for index, path in enumerate(plan.claims.values())
            ),
        ],
    }
    if plan.entrypoint:
        container["command"] = list(plan.entrypoint)
    if plan.arguments:
        container["args"] = list(plan.arguments)
    return container


def _environment(plan: PodPlan) -> list[dict[str, Any]]:
    """Return the variables; HOME is writable, since the user of the image has none here."""
    plain = {"HOME": _SCRATCH, **plan.environment}
    return [
        *({"name": name, "value": value} for name, value in plain.items()),
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": plan.name, "key": name}}}
            for name in plan.secrets
        ),
    ]
