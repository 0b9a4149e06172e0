"""How an engine is had: found at a URL, started as a process, in a container, in Kubernetes.

A launcher is a function (rackgate.engine.Launcher) and a checker of its own table in the target file.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rackgate.nouns.engine import Engine, Launcher
    from rackgate.nouns.target import EngineSpec, Target

__all__ = ["LAUNCHERS", "check_settings", "load_checked_target", "register_launchers"]

_HERE = "rackgate.engines.launchers"
LAUNCHERS = {
    "remote": f"{_HERE}.remote",
    "process": f"{_HERE}.processes.launcher",
    "container": f"{_HERE}.containers.launcher",
    "kubernetes": f"{_HERE}.pods.launcher",
}
"""Where each launcher lives, by the name that a target file uses."""


def register_launchers(register: Callable[[str, Launcher], None]) -> None:
    """Register all launchers; each one's module is imported when it is first used."""
    for name in LAUNCHERS:
        register(name, _later(name))


def check_settings(launcher: str, settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with `[engine.settings]` for this launcher; raises `KeyError` for no launcher."""
    checker = import_module(LAUNCHERS[launcher]).check_settings
    return cast("list[str]", checker(settings))


def load_checked_target(path: Path) -> Target:
    """Return the target of a file that uses these launchers alone; raises `ConfigError`."""
    from rackgate.config.target_file import load_target

    return load_target(path, {name: partial(check_settings, name) for name in LAUNCHERS})


def _later(name: str) -> Launcher:
    def launch(
        spec: EngineSpec, *, run_id: str, log_dir: str, **more: object
    ) -> AbstractContextManager[Engine]:
        launcher = getattr(import_module(LAUNCHERS[name]), name)
        return cast("AbstractContextManager[Engine]", launcher(spec, run_id=run_id, log_dir=log_dir, **more))

    launch.__name__ = name
    return launch
