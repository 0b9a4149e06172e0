"""Targets from a `--target` text: this machine, the URL of an endpoint, or a target file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rackgate.config.problems import ConfigError
from rackgate.config.target_consistency import CheckSettings
from rackgate.config.target_file import endpoint_target, load_target, parse_target
from rackgate.discovery.inspection import inspect_machine
from rackgate.discovery.machine import Machine
from rackgate.discovery.rack_file import rack_text
from rackgate.engines.launchers import settings_checkers
from rackgate.nouns.target import NoCards, Target

LOCAL = "local"
"""The name of this machine on a command line."""


def read_target(
    source: str,
    model: str,
    launchers: Mapping[str, CheckSettings],
    *,
    option: str = "",
    model_option: str = "--model",
    inspect: Callable[[], Machine] = inspect_machine,
) -> Target:
    """Return the target that `source` names; raises `ConfigError` with all its problems.

    `option` begins the messages about a URL, `model_option` is the option that names the model of a URL.
    """
    if source == LOCAL:
        return local_target(inspect())
    if not source.startswith(("http://", "https://")):
        return load_target(Path(source), launchers)
    if not model:
        raise ConfigError([f"{option}{source}: {model_option} is needed: a result belongs to a model"])
    try:
        return endpoint_target(source, model, source=source)
    except ValueError as error:
        raise ConfigError([f"{option}{source}: {error}"]) from error


def local_target(machine: Machine) -> Target:
    """Return the target that `rackgate init` would write of a machine; without a card it says why."""
    target = parse_target(tomllib.loads(rack_text(machine)), LOCAL, settings_checkers())
    return target if machine.inventory.cards else replace(target, no_cards=_no_cards(machine))


def _no_cards(machine: Machine) -> NoCards:
    broken = [step for step in machine.triage if not step.ok]
    curable = [step for step in broken if step.next_step]
    steps = [f"({place}) {step.name}: {step.next_step}" for place, step in enumerate(curable, start=1)]
    why = "; ".join(f"{step.name}: {step.text}" for step in broken) or machine.inventory.why
    on_bus = all(step.ok is not False for step in machine.triage if step.name == "device")
    return NoCards(why=why, on_bus=on_bus, next_steps=tuple(steps))
