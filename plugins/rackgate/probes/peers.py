"""A command on one node that needs another one listening on the next: perftest's client and server."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.nouns.measurement import Reason
from rackgate.probes.json_text import shown

_LISTENS_WITHIN_S = 15.0
_PAUSE_S = 0.3


def run_with_peer(
    runner: Runner, command: Command, peer: Runner | None, listening: Command, deadline_s: float
) -> Ran:
    """Return what the command says once its peer listens: it is tried again while the peer starts.

    A peer that ended by itself before it was spoken to leaves no value, with its own words.
    """
    if peer is None:
        return Ran(reason=Reason.NOT_CONFIGURED, detail="the target gives no way into the next node")
    pool = ThreadPoolExecutor(max_workers=1)
    served = pool.submit(_serve, peer, listening, deadline_s)
    ran = _spoken(runner, command, served, deadline_s)
    said = "" if ran.ok else _words(served)
    pool.shutdown(wait=False)  # a server that nobody speaks to is ended by its own deadline
    if said:
        return Ran(reason=Reason.DIED, detail=f"{peer.name} does not listen: {said}")
    return ran


def _serve(peer: Runner, listening: Command, deadline_s: float) -> Ran:
    try:
        return peer.run(listening, deadline_s)
    finally:
        peer.close()


def _spoken(runner: Runner, command: Command, served: Future[Ran], deadline_s: float) -> Ran:
    ends = time.monotonic() + min(_LISTENS_WITHIN_S, deadline_s)
    ran = runner.run(command, deadline_s)
    while ran.status and ran.reason is None and time.monotonic() < ends and not _words(served):
        time.sleep(_PAUSE_S)
        ran = runner.run(command, deadline_s)
    return ran


def _words(served: Future[Ran]) -> str:
    """Return why a server ended, empty while it runs or where it ended well."""
    if not served.done() or served.result().ok:
        return ""
    ran = served.result()
    return ran.detail or shown(ran.error or ran.text)
