"""Test items: one for each check, in the order of stages; gated items are skipped before any fixture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from rackgate.nouns.slo import STAGES, Check
from rackgate.plugin.options import is_dry

if TYPE_CHECKING:
    from rackgate.plugin.junit import JUnit
    from rackgate.plugin.options import Options
    from rackgate.run.run import Run


CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""The check that an item judges."""

STAGE: pytest.StashKey[str] = pytest.StashKey()
"""The stage that an item belongs to; empty for tests that belong to none."""

LEDGER_TEST = "test_every_asked_check_has_a_record"
"""Name of the last item, which fails for checks without a verdict."""

_FOLDER = re.compile(r"rackgate_suites[/.]s\d_(\w+?)[/.]")
_ANSWERED_PARTLY = {
    "keyword": "-k",
    "deselect": "--deselect",
    "lf": "--lf",
    "maxfail": "-x/--maxfail",
    "stepwise": "--stepwise",
}


class Stages:
    """Makes one item of each check, puts the stages in order, and keeps gated items from running."""

    def __init__(
        self, run: Run, options: Options, checks: tuple[Check, ...], facts: dict[str, Any], junit: JUnit
    ) -> None:
        self._run = run
        self._junit = junit
        self._options = options
        self._checks = checks
        self._facts = facts

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
            stage = item.stash[STAGE] = _stage_of(item)
            check = _check_of(item)
            if check is not None:
                item.stash[CHECK] = check
            empty = "rack_slo" in getattr(item, "fixturenames", ()) and check is None
            (drop if empty or (stage and stage not in asked) else keep).append(item)
        _refuse_twice(keep)
        keep.sort(key=_order)
        items[:] = keep
        if drop:
            config.hook.pytest_deselected(items=drop)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Write what is asked, before anything runs; whatever refuses to be collected leaves no folder."""
        if is_dry(session.config):
            return
        planned = [item.stash[CHECK] for item in session.items if CHECK in item.stash]
        why = self._partial(session.config)
        left_out = len(self._checks) - len(planned)
        if left_out:
            why.append(f"{left_out} of {len(self._checks)} checks not selected")
        self._run.partial_why = tuple(why)
        stages = tuple(name for name in STAGES if name in (self._options.stages or STAGES))
        self._run.open(stages=stages, facts={**self._facts, "partial": bool(why), "partial_why": why})
        self._run.judging.plan(planned)
        self._junit.open()

    def _partial(self, config: pytest.Config) -> list[str]:
        options = self._options
        named = {
            "--rack-stage": options.stages,
            "--rack-only": options.only,
            "--rack-exclude": options.exclude,
        }
        why = [f"{flag} {','.join(values)}" for flag, values in named.items() if values]
        return why + [flag for name, flag in _ANSWERED_PARTLY.items() if config.getoption(name, default=None)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip an item whose check is gated, declared absent or not assessed, and record why."""
        check = item.stash.get(CHECK, None)
        if check is None:
            return
        why = self._run.judging.skip_if_not_run(check)
        if why is not None:
            pytest.skip(why)


def _refuse_twice(items: list[pytest.Item]) -> None:
    seen: dict[str, pytest.Item] = {}
    for item in items:
        check = item.stash.get(CHECK, None)
        if check is None:
            continue
        first = seen.setdefault(check.id, item)
        if first is not item:
            raise pytest.UsageError(
                f"rackgate: check '{check.id}' is judged twice: by {first.nodeid} and by {item.nodeid}"
            )


def _order(item: pytest.Item) -> int:
    if item.name == LEDGER_TEST:
        return len(STAGES) + 1
    stage = item.stash[STAGE]
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def _stage_of(item: pytest.Item | Any) -> str:
    marker = item.get_closest_marker("rack_stage")
    if marker is not None and marker.args:
        return str(marker.args[0])
    match = _FOLDER.search(item.path.as_posix())
    return match.group(1) if match else ""


def _check_of(item: pytest.Item) -> Check | None:
    callspec = getattr(item, "callspec", None)
    check = callspec.params.get("rack_slo") if callspec else None
    return check if isinstance(check, Check) else None
