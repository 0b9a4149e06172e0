"""An engine in a Kubernetes pod: what can be asked of it and done to it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from rackgate.engines.launchers.pods.cluster import Cluster, ClusterRefused
from rackgate.engines.launchers.pods.manifests import (
    LAUNCH_LABEL,
    PodPlan,
    deployment_of,
    secret_of,
    service_of,
)
from rackgate.engines.launchers.pods.state import PodState, event_lines, pod_state

_SCHEDULE_LIMIT_S = 20.0
"""How long a pod may find no node before that is taken for its end."""
_TAIL_BYTES = 65_536
_LOOK_EVERY_S = 0.5


class EnginePod:
    """The Deployment, Service and Secret of one engine; it can be killed and comes back on its port."""

    def __init__(self, cluster: Cluster, plan: PodPlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._manifests = [
            manifest for manifest in (secret_of(plan), service_of(plan), deployment_of(plan)) if manifest
        ]
        self._left: list[dict[str, Any]] = []
        self._has_created = False
        self._state = PodState()
        self._looked = 0.0
        self._unschedulable_since: float | None = None

    def create(self) -> None:
        """Create everything; raises `ClusterRefused`."""
        for manifest in self._manifests:
            self._left.append(manifest)  # before the call: one cut short may have been carried out
            self._cluster.create(manifest)
            self._has_created = True

    def state(self) -> PodState:
        """Return what the cluster says, read anew at most twice a second."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY_S:
            with suppress(ClusterRefused):  # a lost answer is no end of the engine
                self._state = pod_state(self._cluster.read(self._manifests[-1]), self._pods())
            self._looked = now
        return self._state

    def _pods(self) -> list[dict[str, Any]]:
        label = f"{LAUNCH_LABEL}={self._plan.labels[LAUNCH_LABEL]}"
        return self._cluster.pods(self._plan.namespace, label)

    def node_port(self) -> int:
        """Return the port that the cluster gave the Service on every node; raises `ClusterRefused`."""
        service = self._cluster.read(next(one for one in self._manifests if one["kind"] == "Service"))
        return int(service["spec"]["ports"][0].get("nodePort") or 0)

    def ended(self) -> str:
        """Return why no token will come; empty while one may."""
        state = self.state()
        if state.settled or not state.ended:
            self._unschedulable_since = None
            return state.ended
        self._unschedulable_since = self._unschedulable_since or time.monotonic()
        return state.ended if time.monotonic() - self._unschedulable_since > _SCHEDULE_LIMIT_S else ""

    def tail(self) -> bytes:
        """Return the events about the pod and the end of its log."""
        return self.logs()[-_TAIL_BYTES:]

    def logs(self) -> bytes:
        """Return the events, what a container that ended before wrote, and what this one wrote."""
        pod, namespace = self.state().pod, self._plan.namespace
        parts: list[bytes] = []
        for name in filter(None, (self._plan.name, pod)):
            with suppress(ClusterRefused):
                lines = event_lines(self._cluster.events(namespace, name))
                parts += [f"{line}\n".encode() for line in lines]
        for previous in (True, False) if pod else ():
            with suppress(ClusterRefused):
                parts.append(self._cluster.logs(namespace, pod, previous=previous))
        return b"".join(parts)

    def kill(self) -> None:
        """End the pod without grace and keep the cluster from replacing it."""
        with suppress(ClusterRefused):
            self._cluster.scale(self._manifests[-1], 0)
            for pod in self._pods():
                self._cluster.kill_pod(self._plan.namespace, pod["metadata"]["name"])
        self._looked = 0.0

    def alive(self) -> bool:
        """Return whether a pod of it runs."""
        self._looked = 0.0
        return self.state().running

    def restart(self) -> None:
        """Let the cluster make a pod again."""
        self._cluster.scale(self._manifests[-1], 1)
        self._looked = 0.0

    def remove(self, limit_s: float) -> None:
        """Delete everything, the pod first, and wait until no pod is left; a lost call is made again."""
        deadline = time.monotonic() + (limit_s if self._has_created else 0.0)
        while not self._removed() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _removed(self) -> bool:
        try:
            while self._left:
                self._cluster.delete(self._left[-1])
                self._left.pop()
            return not self._pods()
        except ClusterRefused:
            return False
