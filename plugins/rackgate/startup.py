"""Options and files in, a prepared run out; every problem of every file is one usage error."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.problems import ConfigError, nearest
from rackgate.ledger import Ledger
from rackgate.options import Options, resolve_options
from rackgate.planning import plan_checks
from rackgate.recorder import Recorder
from rackgate.redaction import Redactor, secret_values
from rackgate.registry import RegisteredTwice, Registry
from rackgate.run import FolderInUse, Run
from rackgate.slo import STAGES
from rackgate.stages import Stages

if TYPE_CHECKING:
    from rackgate.simulator import RackSettings
    from rackgate.slo import Check
    from rackgate.target import Target

__all__ = ["SESSION_REGISTRY", "Session", "prepare", "simulated_settings"]

SESSION_REGISTRY: pytest.StashKey[Registry] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A prepared acceptance run."""

    run: Run
    options: Options
    checks: tuple[Check, ...]


def prepare(config: pytest.Config) -> Session:
    """Return the prepared run; raises `pytest.UsageError` with every problem of options and files."""
    options = resolve_options(config)
    registry = _registry(config)
    config.stash[SESSION_REGISTRY] = registry
    problems = _bad_stages(options)
    target = None
    try:
        target = config.hook.pytest_rack_target(config=config)
        target = _narrowed(target, options)
    except ConfigError as error:
        problems += error.problems
    units = {name: metric.unit for name, metric in registry.metrics.items()}
    acceptance = None
    try:
        acceptance = load_acceptance(
            Path(options.slo) if options.slo else None,
            options.profile,
            units=units,
            engines=len(target.engines) if target else 1,
        )
    except ConfigError as error:
        problems += error.problems
    if problems or target is None or acceptance is None:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise pytest.UsageError(f"rackgate: {len(problems)} problem(s), nothing was run\n{listed}")
    stages = options.stages or STAGES
    checks = plan_checks(target, acceptance.slos, stages)
    ledger = Ledger(target=target, stop_on_fail=options.stop_on_fail)
    folder = Path(options.out or f"rack-runs/{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{options.profile}").absolute()
    if config.getoption("collectonly"):
        folder = folder / "collect-only"
    try:
        run = Run(
            folder=folder,
            target=target,
            acceptance=acceptance,
            registry=registry,
            ledger=ledger,
            redactor=Redactor(_secrets(target)),
            seed=options.seed,
            on_record=lambda record: config.hook.pytest_rack_record(record=record),
        )
    except FolderInUse as error:
        raise pytest.UsageError(str(error)) from error
    _handicap(run, options, target)
    if config.getoption("xmlpath", default=None) is None:
        config.option.xmlpath = str(folder / "views" / "default" / "junit.xml")
    session = Session(run=run, options=options, checks=checks)
    config.pluginmanager.register(Stages(run, options, checks, _facts(options)), "rackgate-stages")
    config.pluginmanager.register(Recorder(run, options, config), "rackgate-recorder")
    return session


def simulated_settings(options: Options) -> RackSettings:
    """Return the simulated rack that `sim` or `sim:NODESxCARDS` asks for; raises `ConfigError`."""
    from rackgate.simulator.scenarios import scenarios
    from rackgate.simulator.settings import RackSettings, chosen_scenario

    match = re.fullmatch(r"sim(?::(\d+)x(\d+))?", options.target)
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
        raise ConfigError([f"--rack-target {options.target}: {error}"]) from error
    return settings


def _registry(config: pytest.Config) -> Registry:
    registry = Registry()
    try:
        config.hook.pytest_rack_engines(config=config, register=registry.add_engine)
        config.hook.pytest_rack_metrics(config=config, register=registry.add_metric)
        config.hook.pytest_rack_faults(config=config, register=registry.add_fault)
        config.hook.pytest_rack_reports(config=config, register=registry.add_report)
    except RegisteredTwice as error:
        raise pytest.UsageError(str(error)) from error
    return registry


def _bad_stages(options: Options) -> list[str]:
    return [
        f"--rack-stage: no stage '{name}'{nearest(name, STAGES)}"
        for name in options.stages
        if name not in STAGES
    ]


def _narrowed(target: Target, options: Options) -> Target:
    """Keep the target whole, but its engines to those that --rack-only and --rack-exclude leave."""
    known = {node.name for node in target.nodes} | {card.name for card in target.cards}
    known |= {engine.name for engine in target.engines}
    named = (*options.only, *options.exclude)
    problems = [
        f"--rack-only/--rack-exclude: no '{name}'{nearest(name, known)}"
        for name in named
        if name not in known
    ]
    if problems:
        raise ConfigError(problems)
    if not named:
        return target

    def kept(*names: str) -> bool:
        asked = not options.only or any(name in options.only for name in names)
        return asked and not any(name in options.exclude for name in names)

    nodes = tuple(
        replace(node, cards=tuple(card for card in node.cards if kept(node.name, card.name)))
        for node in target.nodes
    )
    engines = tuple(one for one in target.engines if kept(one.name, *one.nodes, *one.cards))
    if not engines:
        raise ConfigError(["--rack-only/--rack-exclude leave no engine"])
    return replace(
        target, nodes=tuple(node for node in nodes if node.cards or not target.cards), engines=engines
    )


def _secrets(target: Target) -> list[str]:
    names = [engine.api_key_env for engine in target.engines]
    names.append(target.gateway.api_key_env if target.gateway else None)
    declared = [os.environ[name] for name in names if name and os.environ.get(name)]
    return [*declared, *secret_values(os.environ)]


def _handicap(run: Run, options: Options, target: Target) -> None:
    if target.grade != "simulated":
        return
    from rackgate.simulator.scenarios import scenario

    run.instrument_handicap = scenario(options.scenario).instrument


def _facts(options: Options) -> dict[str, Any]:
    packages = ("pytest-rackgate", "pytest", "numpy", "httpx", "pyarrow")
    versions = {name: _version(name) for name in packages}
    return {
        "scenario": options.scenario if options.target.startswith("sim") else None,
        "command_line": "pytest " + " ".join(sys.argv[1:]),
        "versions": {**versions, "python": platform.python_version()},
        "options": {name: origin for name, origin in options.origins.items() if origin != "default"},
        "excluded": list(options.exclude),
    }


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
