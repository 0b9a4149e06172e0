"""The shipped targets, launchers, metrics and faults, registered through the public hooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rackgate.nouns.target import Target


class Shipped:
    """The built-in target sources, launchers, metrics and faults."""

    @pytest.hookimpl(trylast=True)
    def pytest_rack_target(self, config: pytest.Config) -> Target | None:
        """Read `--rack-target`: the simulated rack, this machine, a URL, or a file."""
        from rackgate.plugin.startup import OPTIONS, REGISTRY, simulated_settings

        options = config.stash[OPTIONS]
        if options.target == "sim" or options.target.startswith("sim:"):
            from rackgate.simulator.settings import simulated_target

            return simulated_target(simulated_settings(options))
        if options.target == "local":
            return _this_machine(config, options.host_root)
        if options.target.startswith(("http://", "https://")):
            return _endpoint(options.target, options.model)
        from rackgate.config.target_file import load_target

        return load_target(Path(options.target), config.stash[REGISTRY].check_settings)

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
        from rackgate.faults.kill import KillEngine

        register("kill", KillEngine)


def _this_machine(config: pytest.Config, host_root: str) -> Target:
    """Look as patiently as preflight does: what hangs now is not waited for again."""
    from rackgate.discovery.local import local_target
    from rackgate.discovery.look import look_at_this_machine
    from rackgate.hosts.runner import RootRunner
    from rackgate.plugin.startup import HUNG
    from rackgate.preflight.hosts import HOST_DEADLINE_S

    stand_in = RootRunner(Path(host_root)) if host_root else None
    machine = look_at_this_machine(stand_in, deadline_s=HOST_DEADLINE_S)
    target = local_target(machine)
    config.stash[HUNG] = {node.name: machine.hung for node in target.nodes}
    return target


def _endpoint(url: str, model: str) -> Target:
    from rackgate.config.problems import ConfigError
    from rackgate.config.target_file import endpoint_target

    if not model:
        raise ConfigError([f"--rack-target={url}: --rack-model is needed: a result belongs to a model"])
    try:
        return endpoint_target(url, model, source=url)
    except ValueError as error:
        raise ConfigError([f"--rack-target={url}: {error}"]) from error
