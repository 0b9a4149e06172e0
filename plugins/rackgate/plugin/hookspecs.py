"""Every hook that extends rackgate. What ships uses the same hooks; a name registered twice is refused.

docs/extending.md has the whole of what the examples register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rackgate.nouns.target import Target


@pytest.hookspec(firstresult=True)
def pytest_rack_target(config: pytest.Config) -> Target | None:
    """Return the rack's facts, or None to let the next plugin say.

    Example::

        from rackgate.api import EngineSpec, Target

        def pytest_rack_target(config):
            spec = EngineSpec(name="lab", launcher="remote", model="my-model", url="http://10.0.0.7:8000")
            return Target(name="lab", model="my-model", grade="unproven", engines=(spec,))
    """


@pytest.hookspec
def pytest_rack_engines(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register ways to start or find an engine: `register(name, launcher, check_settings)`.

    The launcher is a `rackgate.api.Launcher`; `check_settings(settings)` returns what is wrong with
    `[engine.settings]`, one text for each problem.

    Example::

        def pytest_rack_engines(config, register):
            register("srun", over_srun, lambda settings: [])
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
            register("answer_tokens", "tokens", answer_tokens, statistics=("value",), needs_load=True)
    """


@pytest.hookspec
def pytest_rack_faults(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register what can be broken: `register(name, factory)` with `factory(engine, deadline_s) -> Fault`.

    `deadline_s` bounds each of its proofs. The shipped stage injects `kill`; any other is injected by a test
    that asks for `rack_fault`.

    Example::

        def pytest_rack_faults(config, register):
            register("pause", PauseEngine)
    """


@pytest.hookspec
def pytest_rack_reports(config: pytest.Config, register: Callable[..., None]) -> None:
    """Register a view of the evidence: `register(file_name, render)`.

    `render` gets a `rackgate_reports.evidence.RunEvidence` and returns the file's text.

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

        from rackgate_reports.render import write_views

        def pytest_rack_views(folder, reports, view):
            return list(write_views(folder, reports, view).values())
    """


@pytest.hookspec
def pytest_rack_record(record: dict[str, Any]) -> None:
    """Observe each record just after it was written.

    Example::

        def pytest_rack_record(record):
            if record["kind"] == "verdict":
                logging.getLogger("rack").info("%s: %s", record["check"], record["verdict"])
    """
