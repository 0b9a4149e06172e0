"""The `process` launcher: an engine as a local process, in a group of its own, gone afterwards."""

from __future__ import annotations

import os
import re
import signal
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rackgate.engine import Engine
from rackgate.engines import leftovers
from rackgate.engines.launchers.engine_process import EngineProcess, ProcessPlan
from rackgate.engines.launchers.outcome import (
    ended,
    key_headers,
    log_tail,
    not_ready,
    secret_names,
    start_refused,
    tail_of_file,
)
from rackgate.engines.launchers.ports import free_port, port_taken, url_of
from rackgate.engines.launchers.settings import (
    NUMBER,
    PORT,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    Key,
    number,
    problems_of,
    text,
    text_table,
    texts,
)
from rackgate.engines.readiness import probe_engine, wait_until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rackgate.target import EngineSpec

__all__ = ["KEYS", "check_settings", "environment", "filled_in", "process"]

KEYS = {
    "command": Key(kind=TEXTS, required=True),
    "env": Key(kind=TEXT_TABLE),
    "env_from": Key(kind=TEXTS),
    "cwd": Key(kind=TEXT),
    "host": Key(kind=TEXT),
    "port": Key(kind=PORT),
    "ready_timeout_s": Key(kind=NUMBER),
    "stop_timeout_s": Key(kind=NUMBER),
}
READY_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 20.0
_INHERITED = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|XDG_\w+")
"""What an engine gets of our environment without being asked; anything else is named in `env_from`."""


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a process engine."""
    return problems_of(settings, KEYS)


def filled_in(words: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Return the words with `{port}`, `{host}`, `{model}` and `{name}` filled in; other braces stay."""
    names = "|".join(map(re.escape, values))
    return [re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], word) for word in words]


def environment(spec: EngineSpec, token: str) -> dict[str, str]:
    """Return the engine's environment; raises `LaunchFailed` for a name in `env_from` that is not set."""
    names = texts(spec.settings, "env_from")
    absent = [name for name in names if name not in os.environ]
    if absent:
        raise start_refused(
            spec, "process", f"not set in our environment: {', '.join(absent)}", f"export {' '.join(absent)}"
        )
    chosen = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    chosen |= {name: os.environ[name] for name in names}
    if spec.cards:
        chosen["CUDA_VISIBLE_DEVICES"] = ",".join(card.rpartition("gpu")[2] for card in spec.cards)
    return chosen | text_table(spec.settings, "env") | {leftovers.TOKEN_VARIABLE: token}


@contextmanager
def process(spec: EngineSpec, *, run_id: str, log_dir: str) -> Iterator[Engine]:
    """Yield the engine after its first token; on leaving, its whole process group is gone.

    Raises `LaunchFailed` on entering: at once if the process ends, else at `ready_timeout_s`.
    """
    start = time.monotonic()
    headers = key_headers(spec)
    host = text(spec.settings, "host", "127.0.0.1") or ""
    port = _port(spec, host)
    values = {"port": str(port), "host": host, "model": spec.model, "name": spec.name}
    token = uuid.uuid4().hex
    plan = ProcessPlan(
        spec=spec,
        run_id=run_id,
        command=tuple(filled_in(texts(spec.settings, "command"), values)),
        environment=environment(spec, token),
        log_path=Path(log_dir) / f"{spec.name}.log",
        stop_timeout_s=number(spec.settings, "stop_timeout_s", STOP_TIMEOUT_S),
        token=token,
    )
    running = _started(plan)
    try:
        url = url_of(host, port)
        _wait(plan, running, url, headers, start)
        yield Engine(
            spec=spec,
            url=url,
            headers=headers,
            handle=running,
            cold_start_s=time.monotonic() - start,
            log_path=str(plan.log_path),
        )
    finally:
        running.stop()


def _started(plan: ProcessPlan) -> EngineProcess:
    try:
        return EngineProcess(plan)
    except OSError as error:
        raise start_refused(
            plan.spec, "process", str(error), "check the command, the working directory and the log folder"
        ) from error


def _port(spec: EngineSpec, host: str) -> int:
    wanted = spec.settings.get("port")
    if wanted is None:
        return free_port(host)
    port = int(str(wanted))
    # Without this look another server on the port would answer in the engine's place and be judged.
    if port_taken(host, port):
        raise start_refused(spec, "process", f"{host} port {port}: address already in use", "")
    return port


def _wait(plan: ProcessPlan, running: EngineProcess, url: str, headers: dict[str, str], start: float) -> None:
    spec = plan.spec
    deadline_s = number(spec.settings, "ready_timeout_s", READY_TIMEOUT_S)
    probe = wait_until_ready(
        lambda left_s: probe_engine(url, spec.model, headers, spec.protocol, left_s),
        lambda: not running.alive(),
        deadline_s,
    )
    if probe is not None and probe.ok:
        return
    tail = log_tail(tail_of_file(plan.log_path), secret_names(spec))
    if probe is not None:
        raise not_ready(spec, probe, deadline_s, tail)
    status = running.exit_status or 0
    what = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    raise ended(spec, "process", what, time.monotonic() - start, tail)
