"""Checks -> test items, in the order of stages; gating before any engine starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from rackgate.slo import STAGES

if TYPE_CHECKING:
    from rackgate.options import Options
    from rackgate.run import Run
    from rackgate.slo import Check

__all__ = ["CHECK", "STAGE", "Stages"]

CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""The check that an item judges."""

STAGE: pytest.StashKey[str] = pytest.StashKey()
"""The stage that an item belongs to; empty for tests that belong to none."""

_FOLDER = re.compile(r"rackgate_suites[/.]s\d_(\w+?)[/.]")


class Stages:
    """Makes one item of each check, puts the stages in order, and keeps gated items from running."""

    def __init__(self, run: Run, options: Options, checks: tuple[Check, ...], facts: dict[str, Any]) -> None:
        self._run = run
        self._options = options
        self._checks = checks
        self._facts = facts
        self._deselected = 0

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give a test that asks for `rack_slo` one call for each check of its stage."""
        if "rack_slo" not in metafunc.fixturenames:
            return
        stage = _stage_of(metafunc.definition)
        mine = [check for check in self._checks if check.slo.stage == stage]
        metafunc.parametrize("rack_slo", mine, ids=[check.id for check in mine])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the asked stages, in order; the ledger comes last."""
        asked = self._options.stages or STAGES
        keep: list[pytest.Item] = []
        drop: list[pytest.Item] = []
        for item in items:
            stage = _stage_of(item)
            item.stash[STAGE] = stage
            callspec = getattr(item, "callspec", None)
            check = callspec.params.get("rack_slo") if callspec else None
            if check is not None and hasattr(check, "slo"):
                item.stash[CHECK] = check
            empty = "rack_slo" in getattr(item, "fixturenames", ()) and CHECK not in item.stash
            (drop if empty or (stage and stage not in asked) else keep).append(item)
        keep.sort(key=_order)
        items[:] = keep
        if drop:
            config.hook.pytest_deselected(items=drop)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count checks that were left out by hand (-k, --deselect)."""
        asked = self._options.stages or STAGES
        self._deselected += sum(1 for item in items if CHECK in item.stash and item.stash[STAGE] in asked)
        self._deselected += sum(1 for item in items if STAGE not in item.stash and _is_check(item))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write what is asked, before anything runs."""
        config = session.config
        planned = [item.stash[CHECK] for item in session.items if CHECK in item.stash]
        why = self._partial(config)
        if self._deselected:
            why.append(f"{self._deselected} checks deselected")
        self._run.partial_why = tuple(why)
        if config.getoption("collectonly"):
            return
        stages = tuple(name for name in STAGES if name in (self._options.stages or STAGES))
        self._run.open(stages=stages, facts={**self._facts, "partial": bool(why), "partial_why": why})
        self._run.plan(planned)

    def _partial(self, config: pytest.Config) -> list[str]:
        options = self._options
        named = {
            "--rack-stage": options.stages,
            "--rack-only": options.only,
            "--rack-exclude": options.exclude,
        }
        why = [f"{flag} {','.join(values)}" for flag, values in named.items() if values]
        if config.getoption("keyword", default=""):
            why.append("-k")
        for flag, name in (("--lf", "lf"), ("--deselect", "deselect"), ("-x/--maxfail", "maxfail")):
            if config.getoption(name, default=None):
                why.append(flag)
        return why

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip an item whose check is gated, declared absent or not assessed, and record why."""
        check = item.stash.get(CHECK, None)
        if check is None:
            return
        if check.declared_absent:
            pytest.skip(self._run.skip(check, "declared", check.declared_absent))
        if check.not_assessed:
            pytest.skip(self._run.skip(check, "not_assessed", check.not_assessed))
        by = self._run.ledger.gated_by(check)
        if by is not None:
            pytest.skip(self._run.skip(check, "gated", "", gated_by=by))


def _order(item: pytest.Item) -> int:
    if item.name == "test_every_asked_check_has_a_record":
        return len(STAGES) + 1
    stage = item.stash[STAGE]
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def _stage_of(item: pytest.Item | Any) -> str:
    marker = item.get_closest_marker("rack_stage")
    if marker is not None and marker.args:
        return str(marker.args[0])
    match = _FOLDER.search(item.path.as_posix())
    return match.group(1) if match else ""


def _is_check(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "rack_slo" in callspec.params
