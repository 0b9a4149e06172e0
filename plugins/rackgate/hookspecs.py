"""Every hook that extends rackgate. What ships uses the same hooks; a name registered twice is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rackgate.target import Target

__all__: list[str] = []


@pytest.hookspec(firstresult=True)
def pytest_rack_target(config: pytest.Config) -> Target | None:
    """Return the rack's facts, or None to let the next plugin say.

    Example::

        def pytest_rack_target(config):
            return Target(name="lab", model="m", grade="cpu", engines=(spec,))
    """


@pytest.hookspec
def pytest_rack_engines(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register ways to start or find an engine: `register(name, launcher, check_settings)`.

    Example::

        def pytest_rack_engines(config, register):
            register("slurm", start_with_srun, lambda settings: [])
    """


@pytest.hookspec
def pytest_rack_metrics(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register what a row can be about: `register(name, unit, function)`; the docstring is the definition.

    `statistics`, `windows` and `needs_load` say what a row may ask of it, so that a row that could
    never be answered is refused before anything runs; a metric that does not tell takes any. `inputs`
    says what it is made from (`"card:power_w"`, `"host:kernel"`, `"tool:fio"`, ...: see
    `rackgate.metrics.inputs`), so that `rackgate doctor` can tell before the run whether it is there.
    `layer` (client, network, service, model, container, driver, hardware) is where its failure lives, if
    its inputs do not say it.

    Example::

        def pytest_rack_metrics(config, register):
            register("answer_length_tokens", "tokens", answer_length, statistics=("p50",), needs_load=True)
    """


@pytest.hookspec
def pytest_rack_faults(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register what can be broken: `register(name, factory)` with `factory(engine, deadline_s) -> Fault`.

    `deadline_s` bounds each of its proofs. The shipped stage injects `kill`; any other is injected by a test
    that asks for `rack_fault`.

    Example::

        def pytest_rack_faults(config, register):
            register("pause", PauseFault)
    """


@pytest.hookspec
def pytest_rack_reports(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register a view of the evidence: `register(file_name, render)`; `render(run_evidence) -> str`.

    Example::

        def pytest_rack_reports(config, register):
            register("verdicts.csv", as_csv)
    """


@pytest.hookspec(firstresult=True)
def pytest_rack_views(
    folder: Path, reports: Mapping[str, Callable[..., str]], view: str
) -> list[Path] | None:
    """Write the registered views of a run folder to `views/VIEW/` and return the files.

    Example::

        def pytest_rack_views(folder, reports, view):
            return [write(folder, view, name, render) for name, render in reports.items()]
    """


@pytest.hookspec
def pytest_rack_record(record: dict[str, Any]) -> None:
    """Observe each record just after it was written.

    Example::

        def pytest_rack_record(record):
            if record["kind"] == "verdict":
                send(record)
    """
