"""How an engine is had: found at a URL, started as a process, in a container, in Kubernetes.

A launcher is a function (rackgate.nouns.engine.Launcher) and a checker of its own table in the target file.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import ModuleType

    from rackgate.nouns.engine import Engine, Launcher
    from rackgate.nouns.target import EngineSpec

    SettingsChecker = Callable[[Mapping[str, object]], list[str]]

__all__ = ["register_launchers", "settings_checkers"]

_LAUNCHERS = {
    "remote": ("remote", "remote"),
    "process": ("processes.launcher", "processes.launcher"),
    "container": ("containers.launcher", "containers.settings"),
    "kubernetes": ("pods.launcher", "pods.launcher"),
}
"""By the name in a target file: the module of the launcher, and the module of `check_settings`."""


def register_launchers(register: Callable[[str, Launcher, SettingsChecker], None]) -> None:
    """Register the shipped launchers with their settings checkers; a module is imported on first use."""
    for name, check_settings in settings_checkers().items():
        register(name, _later(name), check_settings)


def settings_checkers() -> dict[str, SettingsChecker]:
    """Return, by launcher, the function that lists the problems of an `[engine.settings]` table."""
    return {name: partial(_check_settings, name) for name in _LAUNCHERS}


def _check_settings(launcher: str, settings: Mapping[str, object]) -> list[str]:
    return cast("list[str]", _module(_LAUNCHERS[launcher][1]).check_settings(settings))


def _later(name: str) -> Launcher:
    def launch(
        spec: EngineSpec, *, run_id: str, log_dir: str, **more: object
    ) -> AbstractContextManager[Engine]:
        launcher = getattr(_module(_LAUNCHERS[name][0]), name)
        return cast("AbstractContextManager[Engine]", launcher(spec, run_id=run_id, log_dir=log_dir, **more))

    launch.__name__ = name
    return launch


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")
