"""The pods behind a running service: found by a label, so that a fault can end one."""

from __future__ import annotations

from contextlib import suppress

from rackgate.engines.launchers.pods.cluster import Cluster, ClusterRefused
from rackgate.engines.launchers.settings import TEXT, Key

POD_KEYS = {
    "pods": Key(kind=TEXT),
    "namespace": Key(kind=TEXT),
    "kubeconfig": Key(kind=TEXT),
    "context": Key(kind=TEXT),
}
"""`pods` is a label selector: the pods that answer at the engine's url."""


class RemotePods:
    """Pods that we did not start: they can be killed, and their own controller brings others."""

    def __init__(self, cluster: Cluster, namespace: str, selector: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector
        self._killed: set[str] = set()

    def names(self) -> list[str]:
        """Return the names of the pods that run now; raises `ClusterRefused`."""
        pods = self._cluster.pods(self._namespace, self._selector)
        living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return [pod["metadata"]["name"] for pod in living if pod.get("status", {}).get("phase") == "Running"]

    def find(self) -> None:
        """Raise `ClusterRefused` if no pod runs."""
        if not self.names():
            raise ClusterRefused(f"no running pod has the label {self._selector}")

    def kill(self) -> None:
        """Delete the pods without grace."""
        with suppress(ClusterRefused):
            for name in self.names():
                self._killed.add(name)
                self._cluster.kill_pod(self._namespace, name)

    def alive(self) -> bool:
        """Return whether one of the pods of before the kill still runs; a lost answer is no death."""
        try:
            names = set(self.names())
        except ClusterRefused:
            return True
        return bool(names & self._killed) if self._killed else bool(names)

    def restart(self) -> None:
        """Leave it to their controller, which makes new ones by itself."""
        self._killed.clear()
