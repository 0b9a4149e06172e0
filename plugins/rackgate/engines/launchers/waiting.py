"""Waiting for the first token of an engine that we started, whatever it was started in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rackgate.engines.catalogue import kind_of
from rackgate.engines.launchers.members import EngineGroup, Part, PartSpec
from rackgate.engines.launchers.outcome import ended, log_end, not_ready, start_refused
from rackgate.engines.launchers.progress import ProgressWatch
from rackgate.engines.probe import probe_engine
from rackgate.engines.protocols.protocol import protocol_named
from rackgate.engines.readiness import wait_until_ready
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start in progress. `what` is the word for messages; `parts` are by name, the front last."""

    spec: EngineSpec
    what: str
    url: str
    headers: dict[str, str]
    parts: Mapping[str, Part]
    roles: Mapping[str, str]
    began: float
    ready_timeout_s: float
    on_progress: Callable[[str], None]
    log_path: str
    hidden: tuple[str, ...] = ()
    image_digest: str | None = None


def check_protocol(spec: EngineSpec, front: PartSpec, what: str) -> None:
    """Raise `LaunchFailed` if the catalogue's engine does not speak the engine's protocol."""
    entry = kind_of(front.spec.settings)
    family = protocol_named(spec.protocol).dialect.family
    if entry is not None and not {spec.protocol, family} & set(entry.protocols):
        raise start_refused(
            spec,
            what,
            f"{entry.title} speaks {' or '.join(entry.protocols)}, the target says {spec.protocol}",
            f'set protocol = "{entry.protocols[0]}" for this engine in the target file',
        )


def handle_of(start: Start) -> Part | EngineGroup:
    """Return what faults act on: the one part, or the group of all."""
    if len(start.parts) == 1:
        return next(iter(start.parts.values()))
    return EngineGroup(start.parts, start.roles)


def ready_engine(start: Start) -> Engine:
    """Return the engine after its first token.

    Raises `LaunchFailed` as soon as a part ends, else when the deadline is over.
    """
    entry = kind_of(start.spec.settings)
    watch = ProgressWatch(
        entry.progress if entry else (),
        {name: part.tail for name, part in start.parts.items()},
        start.on_progress,
    )

    def has_ended() -> bool:
        watch.look()
        return any(part.ended() for part in start.parts.values())

    spec, url = start.spec, start.url
    probe = wait_until_ready(
        lambda left_s: probe_engine(url, spec.model, start.headers, spec.protocol, left_s, route=spec.route),
        has_ended,
        start.ready_timeout_s,
    )
    if probe is not None and probe.ok:
        return Engine(
            spec=spec,
            url=url,
            headers=start.headers,
            handle=handle_of(start),
            cold_start_s=time.monotonic() - start.began,
            image_digest=start.image_digest,
            log_path=start.log_path,
        )
    if probe is not None:
        tail = list(start.parts.values())[-1].tail()
        raise not_ready(spec, probe, start.ready_timeout_s, log_end(tail, start.hidden))
    name, part = next((name, part) for name, part in start.parts.items() if part.ended())
    what = start.what if len(start.parts) == 1 else f"{start.what} {name}"
    raise ended(spec, what, part.ended(), time.monotonic() - start.began, log_end(part.tail(), start.hidden))
