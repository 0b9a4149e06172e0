"""This machine as a target: what `rackgate init` would write of it, without the file."""

from __future__ import annotations

import tomllib
from dataclasses import replace

from rackgate.config.target_file import parse_target
from rackgate.discovery.machine import Machine
from rackgate.discovery.rack_file import rack_text
from rackgate.engines.launchers import settings_checkers
from rackgate.nouns.target import NoCards, Target

LOCAL = "local"
"""What `--rack-target` calls this machine."""


def local_target(machine: Machine) -> Target:
    """Return the target of what was found; without a card it says why, in the order of triage."""
    target = parse_target(tomllib.loads(rack_text(machine)), LOCAL, settings_checkers())
    return target if machine.found.cards else replace(target, no_cards=_no_cards(machine))


def _no_cards(machine: Machine) -> NoCards:
    broken = [step for step in machine.triage if not step.ok]
    told = [step for step in broken if step.next_step]
    steps = [f"({place}) {step.name}: {step.next_step}" for place, step in enumerate(told, start=1)]
    why = "; ".join(f"{step.name}: {step.text}" for step in broken) or machine.found.why
    on_bus = all(step.ok is not False for step in machine.triage if step.name == "device")
    return NoCards(why=why, on_bus=on_bus, next_steps=tuple(steps))
