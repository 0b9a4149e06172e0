"""The calls to a Kubernetes API that the launcher makes, through the project's own Python client."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Cluster", "ClusterRefused", "in_cluster", "open_cluster"]

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
    """One API server. Every method raises `ClusterRefused` with the server's own words."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create what the manifest says; return it as the server keeps it."""
        return self._call("POST", _place(manifest), body=manifest)

    def read(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object as it is now."""
        return self._call("GET", _place(manifest, named=True))

    def scale(self, manifest: Mapping[str, Any], replicas: int) -> None:
        """Set the number of pods of a Deployment."""
        self._call("PATCH", _place(manifest, named=True), body={"spec": {"replicas": replicas}})

    def delete(self, manifest: Mapping[str, Any]) -> None:
        """Delete the object and what it owns; it may be gone already."""
        body = {"propagationPolicy": "Background"}
        try:
            self._call("DELETE", _place(manifest, named=True), body=body)
        except ClusterRefused as error:
            if not str(error).startswith("404"):
                raise

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return the pods with the label."""
        found = self._call("GET", f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": selector})
        return list(found["items"])

    def kill_pod(self, namespace: str, name: str) -> None:
        """Delete a pod without any grace."""
        self._call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body={"gracePeriodSeconds": 0})

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Return the events about the object of that name."""
        query = {"fieldSelector": f"involvedObject.name={name}"}
        return list(self._call("GET", f"/api/v1/namespaces/{namespace}/events", query=query)["items"])

    def logs(self, namespace: str, pod: str, *, previous: bool = False) -> bytes:
        """Return the end of what the pod's container wrote, or the one before it."""
        query = {"tailLines": str(_LOG_LINES), "previous": str(previous).lower()}
        return self._raw("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query=query)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        import json

        return dict(json.loads(self._raw(method, path, **more)))

    def _raw(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        exceptions = import_module("kubernetes.client.exceptions")
        http_error = import_module("urllib3.exceptions").HTTPError
        patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            answer = self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Content-Type": patch, "Accept": "application/json, */*"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=_LIMIT_S,
            )
        except exceptions.ApiException as error:
            raise ClusterRefused(f"{error.status} {_message(error.body) or error.reason}") from error
        except (http_error, OSError) as error:
            raise ClusterRefused(f"the API server does not answer: {error}") from error
        response = answer[0] if isinstance(answer, tuple) else answer
        return bytes(response.data)


def _message(body: object) -> str:
    import json

    try:
        return str(json.loads(str(body))["message"])
    except (ValueError, KeyError, TypeError):
        return ""


_PLURALS = {"Deployment": "deployments", "Service": "services", "Secret": "secrets"}


def _place(manifest: Mapping[str, Any], *, named: bool = False) -> str:
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    metadata = manifest["metadata"]
    path = f"{root}/namespaces/{metadata['namespace']}/{_PLURALS[manifest['kind']]}"
    return f"{path}/{metadata['name']}" if named else path
