"""The calls to a Kubernetes API that the launcher makes, through the project's own Python client."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_LIMIT_S = 20
_LOG_LINES = 5_000


class ClusterRefused(Exception):
    """The cluster cannot be used: no client, no configuration, no answer, or it said no."""


def in_cluster() -> bool:
    """Return whether we run in a pod ourselves, and so reach services by their cluster addresses."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def open_cluster(kubeconfig: str | None, context: str | None) -> Cluster:
    """Return the cluster of a kubeconfig (as kubectl chooses it), or our own; raises `ClusterRefused`."""
    try:
        config, client = import_module("kubernetes.config"), import_module("kubernetes.client")
    except ImportError as error:
        raise ClusterRefused(
            "the kubernetes client is not installed: pip install 'pytest-rackgate[kubernetes]'"
        ) from error
    try:
        if kubeconfig is None and context is None and in_cluster():
            config.load_incluster_config()
            return Cluster(client.ApiClient())
        return Cluster(config.new_client_from_config(config_file=kubeconfig, context=context))
    except (config.ConfigException, OSError) as error:
        raise ClusterRefused(f"no usable kubeconfig: {error}") from error


class Cluster:
    """One API server. Every method raises `ClusterRefused` with the server's own words.

    Answers are taken as the JSON that was sent, so that fields newer than the client are kept.
    """

    def __init__(self, api: Any) -> None:
        client = import_module("kubernetes.client")
        self._api = api
        self._core = client.CoreV1Api(api)
        self._apps = client.AppsV1Api(api)

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create what the manifest says; return it as the server keeps it."""
        return self._object("create", manifest, body=dict(manifest))

    def read(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object as it is now."""
        return self._object("read", manifest, name=manifest["metadata"]["name"])

    def scale(self, manifest: Mapping[str, Any], replicas: int) -> None:
        """Set the number of pods of a Deployment."""
        place = _place(manifest)
        body = {"spec": {"replicas": replicas}}
        _json(
            self._apps.patch_namespaced_deployment_scale,
            name=manifest["metadata"]["name"],
            **place,
            body=body,
        )

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Delete the object and what it owns; it may be gone already."""
        try:
            name = manifest["metadata"]["name"]
            self._object("delete", manifest, name=name, propagation_policy="Background")
        except ClusterRefused as error:
            if not str(error).startswith("404"):
                raise

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods with the label."""
        found = _json(self._core.list_namespaced_pod, namespace=namespace, label_selector=selector)
        return list(found["items"])

    def labelled(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the objects of a kind with the label, as manifests that `delete` takes."""
        api = self._apps if kind == "Deployment" else self._core
        method = getattr(api, f"list_namespaced_{kind.lower()}")
        found = _json(method, namespace=namespace, label_selector=selector)["items"]
        return [{**item, "kind": kind} for item in found]

    def kill_pod(self, namespace: str, name: str) -> None:
        """Delete a pod without any grace."""
        _json(self._core.delete_namespaced_pod, name=name, namespace=namespace, grace_period_seconds=0)

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return the events about the object of that name."""
        about = f"involvedObject.name={name}"
        found = _json(self._core.list_namespaced_event, namespace=namespace, field_selector=about)
        return list(found["items"])

    def logs(self, namespace: str, pod: str, *, previous: bool = False) -> bytes:
        """Return the end of what the pod's container wrote, or the one before it."""
        return _answer(
            self._core.read_namespaced_pod_log,
            name=pod,
            namespace=namespace,
            previous=previous,
            tail_lines=_LOG_LINES,
        )

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _object(self, verb: str, manifest: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        api = self._apps if manifest["kind"] == "Deployment" else self._core
        method = getattr(api, f"{verb}_namespaced_{manifest['kind'].lower()}")
        return _json(method, **_place(manifest), **more)


def _place(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {"namespace": str(manifest["metadata"]["namespace"])}


def _json(method: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return dict(json.loads(_answer(method, **arguments)))


def _answer(method: Callable[..., Any], **arguments: Any) -> bytes:
    """Call a method of the client and return the body of the answer."""
    refused = import_module("kubernetes.client.exceptions").ApiException
    broken = import_module("urllib3.exceptions").HTTPError
    try:
        response = method(**arguments, _preload_content=False, _request_timeout=_LIMIT_S)
        data, status = bytes(response.data), int(response.status)
    except refused as error:
        raise ClusterRefused(f"{error.status} {_message(error.body) or error.reason}") from error
    except (broken, OSError) as error:
        raise ClusterRefused(f"the API server does not answer: {error}") from error
    if status >= 300:
        raise ClusterRefused(f"{status} {_message(data)}")
    return data


def _message(body: Any) -> str:
    """Return the message of a Status object, else the body as it is."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:300]
