"""The `container` launcher: an engine in a container with exactly the cards it was given, gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rackgate.engines.client import key_headers
from rackgate.engines.launchers.containers.launch import ContainerLaunch, filled_spec
from rackgate.engines.launchers.members import parts_of
from rackgate.engines.launchers.progress import silent
from rackgate.engines.launchers.secrets import hidden_values
from rackgate.engines.launchers.settings import number
from rackgate.engines.launchers.waiting import Start, check_protocol, ready_engine
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec

READY_TIMEOUT_S = 900.0


@contextmanager
def container(
    spec: EngineSpec, *, run_id: str, log_dir: str, on_progress: Callable[[str], None] = silent
) -> Iterator[Engine]:
    """Yield the engine after its first token; on leaving, the container is gone and its log is kept.

    Raises `LaunchFailed` on entering: at once if the daemon refuses or a container exits, else at
    `ready_timeout_s`.
    """
    began = time.monotonic()
    headers = key_headers(spec)
    parts = parts_of(spec)
    check_protocol(spec, parts[-1], "container")
    with ExitStack() as stack:
        launch = ContainerLaunch(spec, run_id, Path(log_dir), on_progress, stack)
        running = {part.name: launch.started(part, parts) for part in parts}
        front = parts[-1]
        yield ready_engine(
            Start(
                spec=launch.with_metrics(front),
                what="container",
                url=launch.url_of(front),
                headers=headers,
                parts=running,
                roles={part.name: part.role for part in parts},
                began=began,
                ready_timeout_s=number(filled_spec(front).settings, "ready_timeout_s", READY_TIMEOUT_S),
                on_progress=on_progress,
                log_path=str(launch.log_path(front)),
                hidden=tuple(value for part in parts for value in hidden_values(part.spec)),
                image_digest=launch.digests[front.short],
            )
        )
