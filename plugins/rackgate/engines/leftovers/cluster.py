"""What dead runs left in a cluster: found by the label, told apart by the owner's annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rackgate.engines.launch_records import LABEL_PREFIX
from rackgate.engines.launchers.pods.cluster import Cluster, ClusterRefused, open_cluster
from rackgate.engines.launchers.settings import text
from rackgate.engines.leftovers.leftovers import Leftover, is_left
from rackgate.nouns.target import Target

_SELECTOR = "app.kubernetes.io/managed-by=rackgate"
_KINDS = ("Deployment", "Service", "Secret")
_PREFIX = "rackgate.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace of a cluster, as a target's engine names it."""

    name: str
    kubeconfig: str | None = None
    context: str | None = None


def namespaces_of(target: Target) -> list[Namespace]:
    """Return where the target's engines run in clusters, each once."""
    found = [
        Namespace(
            name=text(spec.settings, "namespace", "default") or "default",
            kubeconfig=text(spec.settings, "kubeconfig"),
            context=text(spec.settings, "context"),
        )
        for spec in target.engines
        if spec.launcher == "kubernetes"
    ]
    return list(dict.fromkeys(found))


def find_in(namespace: Namespace) -> list[Leftover]:
    """Return what this user's dead runs left there; raises `ClusterRefused`."""
    cluster = open_cluster(namespace.kubeconfig, namespace.context)
    try:
        return list(_left(cluster, namespace))
    finally:
        cluster.close()


def _left(cluster: Cluster, namespace: Namespace) -> Iterator[Leftover]:
    for kind in _KINDS:
        for item in cluster.labelled(kind, namespace.name, _SELECTOR):
            facts = _facts(item)
            if not is_left(facts):
                continue
            name = item["metadata"]["name"]
            yield Leftover(
                kind=kind.lower(),
                ident=f"{namespace.name}/{name}",
                engine=facts.get(f"{LABEL_PREFIX}engine", ""),
                run_id=facts.get(f"{LABEL_PREFIX}run_id", ""),
                owner_pid=int(facts.get(f"{LABEL_PREFIX}pid") or 0),
                detail=f"{kind.lower()} {name} in namespace {namespace.name}",
            )


def _facts(item: dict[str, Any]) -> dict[str, str]:
    """Return the owner's facts under the names that containers have as labels."""
    notes = item["metadata"].get("annotations") or {}
    return {
        f"{LABEL_PREFIX}{name.removeprefix(_PREFIX)}": str(value)
        for name, value in notes.items()
        if name.startswith(_PREFIX)
    }


def remove_from(namespace: Namespace, leftover: Leftover) -> bool:
    """Delete one object; return whether it is gone or going."""
    kind = leftover.kind.capitalize()
    metadata = {"name": leftover.ident.partition("/")[2], "namespace": namespace.name}
    try:
        cluster = open_cluster(namespace.kubeconfig, namespace.context)
    except ClusterRefused:
        return False
    try:
        cluster.delete({"kind": kind, "metadata": metadata})
    except ClusterRefused:
        return False
    finally:
        cluster.close()
    return True
