"""The `process` launcher: an engine as a process of this machine, ended with all of its children."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from rackgate.engines import launch_records
from rackgate.engines.client import key_headers
from rackgate.engines.launchers.files import FILES_KEY, file_problems, filled_files, write_files
from rackgate.engines.launchers.filling import (
    ENGINE_KEYS,
    engine_problems,
    filled_environment,
    filled_in,
    placeholders,
    with_defaults,
)
from rackgate.engines.launchers.members import MEMBERS_KEY, PartSpec, member_problems, parts_of, peer_values
from rackgate.engines.launchers.outcome import start_refused
from rackgate.engines.launchers.ports import free_port, port_taken, url_of
from rackgate.engines.launchers.processes.engine import EngineProcess, ProcessPlan
from rackgate.engines.launchers.progress import silent
from rackgate.engines.launchers.secrets import SECRET_KEYS, SecretMissing, hidden_values, read_secrets
from rackgate.engines.launchers.settings import (
    TEXT,
    TEXTS,
    WHOLE_TABLE,
    Key,
    number,
    problems_of,
    text,
    texts,
)
from rackgate.engines.launchers.waiting import Start, check_protocol, ready_engine
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec

KEYS = {
    **ENGINE_KEYS,
    **SECRET_KEYS,
    **MEMBERS_KEY,
    **FILES_KEY,
    "command": Key(kind=TEXTS, required=True),
    "cwd": Key(kind=TEXT),
    "host": Key(kind=TEXT),
    "limits": Key(kind=WHOLE_TABLE),
}
READY_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 20.0
_INHERITED = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|XDG_\w+")
"""What an engine gets of our environment without being asked; anything else is named in `env_from`."""
_LIMITS = ("as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack")


def check_settings(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` of a process engine."""
    unknown = engine_problems(settings)
    if unknown:
        return unknown
    keys = {**KEYS, "command": replace(KEYS["command"], required="members" not in settings)}
    found = problems_of(with_defaults(settings, in_container=False), keys)
    limits = settings.get("limits")
    if isinstance(limits, dict):
        found += [
            f"'limits': no limit {name!r}; valid: {', '.join(_LIMITS)}"
            for name in limits
            if name not in _LIMITS
        ]
    return found + file_problems(settings) + member_problems(settings, KEYS)


def environment(spec: EngineSpec, token: str, secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's environment: a few of our variables, its secrets, its cards, its own table."""
    chosen = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
    if spec.cards:
        chosen["CUDA_VISIBLE_DEVICES"] = ",".join(card.rpartition("gpu")[2] for card in spec.cards)
        # Else CUDA counts the fastest card first, and index 0 is another card than the driver's.
        chosen["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return chosen | dict(secrets) | {launch_records.TOKEN_VARIABLE: token}


@contextmanager
def process(
    spec: EngineSpec, *, run_id: str, log_dir: str, on_progress: Callable[[str], None] = silent
) -> Iterator[Engine]:
    """Yield the engine after its first token; on leaving, its whole process group is gone.

    Raises `LaunchFailed` on entering: at once if a process ends, else at `ready_timeout_s`.
    """
    began = time.monotonic()
    headers = key_headers(spec)
    parts = parts_of(spec)
    check_protocol(spec, parts[-1], "process")
    ports = {part.short: _port(part.spec) for part in parts}
    with ExitStack() as stack:
        running: dict[str, EngineProcess] = {}
        for part in parts:
            plan = _plan(part, ports, run_id, Path(log_dir))
            running[part.name] = _started(plan)
            stack.callback(running[part.name].stop)
        front = parts[-1]
        settings = with_defaults(front.spec.settings, in_container=False)
        yield ready_engine(
            Start(
                spec=_told(spec, plan),
                what="process",
                url=url_of(*ports[front.short]),
                headers=headers,
                parts=running,
                roles={part.name: part.role for part in parts},
                began=began,
                ready_timeout_s=number(settings, "ready_timeout_s", READY_TIMEOUT_S),
                on_progress=on_progress,
                log_path=str(_log_path(Path(log_dir), front)),
                hidden=tuple(value for part in parts for value in hidden_values(part.spec)),
            )
        )


def _plan(part: PartSpec, ports: Mapping[str, tuple[str, int]], run_id: str, log_dir: Path) -> ProcessPlan:
    spec = part.spec
    settings = with_defaults(spec.settings, in_container=False, cards=len(spec.cards))
    host, port = ports[part.short]
    values = placeholders(spec, host, port) | {"extra_port": str(free_port(host))}
    folder = log_dir / f"{spec.name}.files"
    values |= peer_values(ports) | {"files": str(folder)}
    token = uuid.uuid4().hex
    try:
        secrets = read_secrets(spec)
    except SecretMissing as error:
        raise start_refused(spec, "process", str(error), error.hint) from error
    try:
        write_files(filled_files(settings, values), folder)
    except OSError as error:
        raise start_refused(spec, "process", str(error), "check the log folder") from error
    return ProcessPlan(
        spec=spec,
        run_id=run_id,
        command=tuple(filled_in(texts(settings, "command"), values)),
        environment={**environment(spec, token, secrets.values), **filled_environment(settings, values)},
        log_path=_log_path(log_dir, part),
        stop_timeout_s=number(settings, "stop_timeout_s", STOP_TIMEOUT_S),
        token=token,
    )


def _told(spec: EngineSpec, front: ProcessPlan) -> EngineSpec:
    """Return the spec with the port of metrics that its command names, where the target names none."""
    port = re.search(r"--metrics-port[= ](\d+)", " ".join(front.command))
    return replace(spec, metrics=f":{port[1]}/metrics") if port and spec.metrics is None else spec


def _log_path(log_dir: Path, part: PartSpec) -> Path:
    return log_dir / f"{part.spec.name}.log"


def _started(plan: ProcessPlan) -> EngineProcess:
    if not plan.command:
        raise start_refused(plan.spec, "process", "it has no command", "add `command` to [engine.settings]")
    try:
        return EngineProcess(plan)
    except OSError as error:
        raise start_refused(
            plan.spec, "process", str(error), "check the command, the working directory and the log folder"
        ) from error


def _port(spec: EngineSpec) -> tuple[str, int]:
    host = text(spec.settings, "host", "127.0.0.1") or ""
    wanted = spec.settings.get("port")
    if wanted is None:
        return host, free_port(host)
    port = int(str(wanted))
    # Without this look another server on the port would answer in the engine's place and be judged.
    if port_taken(host, port):
        raise start_refused(spec, "process", f"{host} port {port}: address already in use", "")
    return host, port
