"""Preparation of a run from options and files; all problems of all files are one usage error."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.checks.selection import Selection, select, unknown_entities
from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.problems import ConfigError, nearest
from rackgate.evidence.redaction import Redactor, secret_values
from rackgate.judging.ledger import Ledger
from rackgate.metrics.inputs import UnknownInput
from rackgate.metrics.registry import RegisteredTwice, Registry
from rackgate.nouns.slo import STAGES
from rackgate.plugin.items import Stages
from rackgate.plugin.junit import JUnit
from rackgate.plugin.options import Options, is_dry, misread_paths, resolve_options
from rackgate.plugin.recorder import Recorder
from rackgate.plugin.run_end import Conclusion
from rackgate.run.log import FolderInUse
from rackgate.run.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rackgate.config.acceptance_file import Acceptance
    from rackgate.hosts.facts.fact import Fact
    from rackgate.nouns.slo import Check
    from rackgate.nouns.target import Target
    from rackgate.simulator.settings import RackSettings


OPTIONS: pytest.StashKey[Options] = pytest.StashKey()
"""The resolved options, for `pytest_rack_target`."""

REGISTRY: pytest.StashKey[Registry] = pytest.StashKey()
"""What was registered, for `pytest_rack_target`."""

HUNG: pytest.StashKey[Mapping[str, Mapping[str, Fact]]] = pytest.StashKey()
"""By node the facts that hung while `pytest_rack_target` looked for them: preflight waits no second time."""

_Read = TypeVar("_Read")
_PACKAGES = ("pytest-rackgate", "pytest", "numpy", "httpx", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A prepared acceptance run."""

    run: Run
    options: Options
    checks: tuple[Check, ...]


def prepare(config: pytest.Config) -> Session:
    """Return the prepared run; raises `pytest.UsageError` with every problem of options and files."""
    options, problems = resolve_options(config)
    registry = _registry(config)
    config.stash[OPTIONS], config.stash[REGISTRY] = options, registry
    folder = _folder(options)
    problems += [*misread_paths(config), *_bad_stages(options), *_bad_folder(folder)]
    selection = _told(problems, lambda: _selection(config, options))
    target, path = selection.target if selection else None, Path(options.slo) if options.slo else None
    acceptance = _told(
        problems, lambda: load_acceptance(path, options.profile, metrics=registry.metrics, target=target)
    )
    if selection and not is_dry(config):
        problems += _bad_load_machines(selection.target)
    if problems or selection is None or acceptance is None:
        raise _refusal(problems)
    registry.add_probes(acceptance.probes)
    checks = plan_checks(
        selection.target,
        acceptance.slos,
        options.stages or STAGES,
        metrics=registry.metrics,
        probes=acceptance.probes,
    )
    run = _run(config, folder, selection, acceptance, options)
    junit = JUnit(config, None if is_dry(config) else run)
    recorder = Recorder(run, options, config, junit)
    plugins = {
        "rackgate-stages": Stages(run, options, checks, _facts(options, selection), junit),
        "rackgate-recorder": recorder,
        "rackgate-conclusion": Conclusion(run, config, recorder, junit),
    }
    for name, plugin in plugins.items():
        config.pluginmanager.register(plugin, name)
    return Session(run=run, options=options, checks=checks)


def _told(problems: list[str], read: Callable[[], _Read]) -> _Read | None:
    """Return what was read, or note why it could not be."""
    try:
        return read()
    except ConfigError as error:
        problems += error.problems
        return None


def _refusal(problems: list[str]) -> pytest.UsageError:
    redactor = Redactor(secret_values(os.environ))
    listed = "\n".join(f"  {redactor.redact(problem)}" for problem in problems)
    return pytest.UsageError(f"rackgate: {len(problems)} problem(s), nothing was run\n{listed}")


def _run(
    config: pytest.Config, folder: Path, selection: Selection, acceptance: Acceptance, options: Options
) -> Run:
    target = selection.target
    try:
        run = Run(
            folder=folder,
            target=target,
            acceptance=acceptance,
            registry=config.stash[REGISTRY],
            ledger=Ledger(target=target, left_out=selection.left_out, stop_on_fail=options.stop_on_fail),
            redactor=Redactor(_secrets(target)),
            seed=options.seed,
            on_record=lambda record: config.hook.pytest_rack_record(record=record),
        )
    except FolderInUse as error:
        raise pytest.UsageError(str(error)) from error
    run.instrument_fault = _instrument_fault(options, target)
    run.hung = config.stash.get(HUNG, {})
    return run


def simulated_settings(options: Options) -> RackSettings:
    """Return the simulated rack that `sim` or `sim:NODESxCARDS` asks for; raises `ConfigError`."""
    from rackgate.simulator.scenarios import scenarios
    from rackgate.simulator.settings import RackSettings, chosen_scenario

    match = re.fullmatch(r"sim(?::(\d{1,4})x(\d{1,4}))?", options.target)
    problems = []
    if match is None:
        problems.append(f"--rack-target: '{options.target}' is not sim:NODESxCARDS, such as sim:2x2")
    known = scenarios()
    if options.scenario not in known:
        problems.append(
            f"--rack-scenario: no scenario '{options.scenario}'{nearest(options.scenario, known)}"
        )
    if problems or match is None:
        raise ConfigError(problems)
    nodes, cards = (int(part or 2) for part in match.groups())
    try:
        settings = RackSettings(nodes=nodes, cards=cards, scenario=options.scenario, seed=options.seed)
        chosen_scenario(settings)
    except ValueError as error:
        raise ConfigError([f"--rack-target={options.target}: {error}"]) from error
    return settings


def _registry(config: pytest.Config) -> Registry:
    registry = Registry()
    try:
        config.hook.pytest_rack_engines(config=config, register=registry.add_engine)
        config.hook.pytest_rack_metrics(config=config, register=registry.add_metric)
        config.hook.pytest_rack_faults(config=config, register=registry.add_fault)
        config.hook.pytest_rack_reports(config=config, register=registry.add_report)
    except (RegisteredTwice, UnknownInput) as error:
        raise pytest.UsageError(f"rackgate: {error}") from error
    return registry


def _bad_stages(options: Options) -> list[str]:
    return [
        f"--rack-stage: no stage '{name}'{nearest(name, STAGES)}"
        for name in options.stages
        if name not in STAGES
    ]


def _bad_load_machines(target: Target) -> list[str]:
    from rackgate.loadgen.remote.relay import NoLoadMachines, check_machines

    try:
        if target.load_machines is not None:
            check_machines(target.load_machines)
    except NoLoadMachines as error:
        return [f"{target.source}: load_machines: {error}"]
    return []


def _folder(options: Options) -> Path:
    if options.out:
        return Path(options.out).absolute()
    folder = Path(f"rack-runs/{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{options.profile}").absolute()
    number = 2
    while folder.exists():
        folder = folder.with_name(f"{folder.name}-{number}")
        number += 1
    return folder


def _bad_folder(folder: Path) -> list[str]:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return [f"--rack-out: {there} is a file"]
    return [] if os.access(there, os.W_OK) else [f"--rack-out: {there} cannot be written to"]


def _selection(config: pytest.Config, options: Options) -> Selection:
    """Return the rack's facts, narrowed to what is asked; raises `ConfigError`."""
    target: Target = _with_host_root(config.hook.pytest_rack_target(config=config), options.host_root)
    unknown, known = unknown_entities(target, (*options.only, *options.exclude))
    if unknown:
        raise ConfigError(
            f"--rack-only/--rack-exclude: no '{name}'{nearest(name, known)}" for name in unknown
        )
    selection = select(target, only=options.only, exclude=options.exclude)
    if target.engines and not selection.target.engines:
        raise ConfigError(["--rack-only/--rack-exclude leave no engine"])
    return selection


def _with_host_root(target: Target, folder: str) -> Target:
    """Return the target with a folder in place of its hosts: what is then seen is no hardware's."""
    if not folder:
        return target
    root = Path(folder).absolute()
    if not root.is_dir():
        raise ConfigError([f"--rack-host-root={folder}: no such folder"])
    if not target.nodes:
        raise ConfigError([f"--rack-host-root={folder}: target {target.name} declares no node"])
    nodes = []
    for node in target.nodes:
        own = root / node.name
        access = replace(node.access, root=str(own if own.is_dir() else root), kernel_log=None)
        nodes.append(replace(node, access=access))
    return replace(target, nodes=tuple(nodes), grade="simulated")


def _secrets(target: Target) -> list[str]:
    names = [engine.api_key_env for engine in target.engines]
    controllers = [node.access.redfish for node in target.nodes if node.access.redfish]
    names += [one.password_env for one in controllers]
    names += [target.gateway.api_key_env if target.gateway else None, target.prometheus_key_env]
    declared = [os.environ[name] for name in names if name and os.environ.get(name)]
    return [*declared, *secret_values(os.environ)]


def _instrument_fault(options: Options, target: Target) -> str:
    if not target.made_here:
        return ""
    from rackgate.simulator.scenarios import scenario

    return scenario(options.scenario).instrument


def _facts(options: Options, selection: Selection) -> dict[str, Any]:
    return {
        "scenario": options.scenario if selection.target.made_here else None,
        "command_line": "pytest " + " ".join(sys.argv[1:]),
        "versions": {**{name: _version(name) for name in _PACKAGES}, "python": platform.python_version()},
        "options": {name: origin for name, origin in options.origins.items() if origin != "default"},
        "excluded": list(selection.left_out),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
