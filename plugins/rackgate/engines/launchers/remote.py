"""The `remote` launcher: an engine that runs already, at the URL of the target file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from rackgate.engines.catalogue import OWN_KIND
from rackgate.engines.client import key_headers
from rackgate.engines.launchers.filling import engine_problems
from rackgate.engines.launchers.pods.cluster import ClusterRefused, open_cluster
from rackgate.engines.launchers.pods.remote_pods import POD_KEYS, RemotePods
from rackgate.engines.launchers.progress import silent
from rackgate.engines.launchers.settings import NUMBER, TABLE, TEXT, Key, number, problems_of, text
from rackgate.engines.probe import probe_engine
from rackgate.nouns.engine import Engine, LaunchFailed
from rackgate.nouns.target import EngineSpec

KEYS = {"ready_timeout_s": Key(kind=NUMBER), "engine": Key(kind=TEXT), OWN_KIND: Key(kind=TABLE), **POD_KEYS}


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a remote engine."""
    return engine_problems(settings) or problems_of(settings, KEYS)


@contextmanager
def remote(
    spec: EngineSpec, *, run_id: str, log_dir: str, on_progress: Callable[[str], None] = silent
) -> Iterator[Engine]:
    """Yield the running engine after one token came out; there is nothing to end on leaving.

    Raises `LaunchFailed` on entering.
    """
    del run_id, log_dir, on_progress
    if spec.url is None:
        raise LaunchFailed(
            f"{spec.title}: a remote engine needs a url",
            layer="network",
            hint='add url = "http://HOST:PORT" to the engine in the target file',
        )
    headers = key_headers(spec)
    deadline_s = number(spec.settings, "ready_timeout_s", 30.0)
    probe = probe_engine(spec.url, spec.model, headers, spec.protocol, deadline_s, route=spec.route)
    if not probe.ok:
        raise LaunchFailed(f"{spec.title}: {probe.message}", layer=probe.layer_failed, hint=probe.hint)
    with ExitStack() as stack:
        handle = _pods(spec, stack) if "pods" in spec.settings else None
        yield Engine(spec=spec, url=spec.url.rstrip("/"), headers=headers, handle=handle)


def _pods(spec: EngineSpec, stack: ExitStack) -> RemotePods:
    settings = spec.settings
    try:
        cluster = open_cluster(text(settings, "kubeconfig"), text(settings, "context"))
        stack.callback(cluster.close)
        pods = RemotePods(cluster, text(settings, "namespace", "default") or "", str(settings["pods"]))
        pods.find()
    except ClusterRefused as error:
        raise LaunchFailed(
            f"{spec.title}: its pods are not found: {error}",
            layer="service",
            hint="check `pods` (a label selector), `namespace` and `context`, or leave them out",
        ) from error
    return pods
