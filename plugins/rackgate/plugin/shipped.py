"""The shipped targets, launchers, metrics and faults, registered through the public hooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackgate.discovery.machine import Machine
    from rackgate.nouns.target import Target


class Shipped:
    """The built-in target sources, launchers, metrics and faults."""

    @pytest.hookimpl(trylast=True)
    def pytest_rack_target(self, config: pytest.Config) -> Target | None:
        """Read `--rack-target`: the simulated rack, this machine, a URL, or a file."""
        from rackgate.discovery.target_source import read_target
        from rackgate.plugin.startup import OPTIONS, REGISTRY, simulated_settings

        options = config.stash[OPTIONS]
        if options.target == "sim" or options.target.startswith("sim:"):
            from rackgate.simulator.settings import simulated_target

            return simulated_target(simulated_settings(options))
        return read_target(
            options.target,
            options.model,
            config.stash[REGISTRY].check_settings,
            option="--rack-target=",
            model_option="--rack-model",
            inspect=lambda: _this_machine(config, options.host_root),
        )

    def pytest_rack_engines(self, register: Callable[..., None]) -> None:
        """Register the shipped launchers."""
        from rackgate.engines.launchers import register_launchers

        register_launchers(register)

    def pytest_rack_metrics(self, register: Callable[..., None]) -> None:
        """Register the shipped metrics."""
        from rackgate.metrics.shipped import register_metrics

        register_metrics(register)

    def pytest_rack_faults(self, register: Callable[..., None]) -> None:
        """Register the shipped faults."""
        from rackgate.faults.catalogue import SHIPPED_FAULTS

        for kind, factory in SHIPPED_FAULTS.items():
            register(kind, factory)


def _this_machine(config: pytest.Config, host_root: str) -> Machine:
    """Inspect this machine as patiently as preflight does, which skips the facts that hung here."""
    from rackgate.discovery.inspection import inspect_machine
    from rackgate.hosts.runner import RootRunner
    from rackgate.plugin.startup import HUNG
    from rackgate.preflight.hosts import HOST_DEADLINE_S

    stand_in = RootRunner(Path(host_root)) if host_root else None
    machine = inspect_machine(stand_in, deadline_s=HOST_DEADLINE_S)
    config.stash[HUNG] = {machine.host: machine.hung}
    return machine
