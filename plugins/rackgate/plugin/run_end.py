"""End of a run: exit code, last record, views and terminal summary."""

from __future__ import annotations

import signal
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from rackgate.judging.message import number, scope_text
from rackgate.judging.run_verdict import RunVerdict
from rackgate.nouns.slo import STAGES
from rackgate.nouns.verdict import Verdict
from rackgate.stages.economy import record_classes

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from _pytest.terminal import TerminalReporter

    from rackgate.plugin.junit import JUnit
    from rackgate.plugin.recorder import Recorder
    from rackgate.run.run import Run


_MEASURED_ENDS = (0, 1, 5)
"""Pytest's own exit codes of a run that came to its end."""

_MOST_LINES = 20


class Conclusion:
    """Decides whether the run is accepted, once, when pytest is done."""

    def __init__(self, run: Run, config: pytest.Config, recorder: Recorder, junit: JUnit) -> None:
        self._run = run
        self._config = config
        self._recorder = recorder
        self._junit = junit
        self._interrupted = False
        self._headline = ""
        self._end: dict[str, Any] = {}
        self._views: list[str] = []
        self._previous_handler: Any = None

    def pytest_sessionstart(self) -> None:
        """Turn SIGTERM into an orderly stop: teardown runs, JUnit is written, the exit code is not 0."""
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGTERM, _stop)

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the run was stopped from outside."""
        self._interrupted = True

    # The innermost wrapper: the exit code is set before anything reads it, engines are gone and JUnit is
    # written before the last record, and views exist before the terminal names them.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Decide the exit code; after teardown write the last record and the views."""
        if not self._run.log.opened:
            yield
            self._restore_handler()
            return
        self._recorder.end_stage()
        self._decide(session)
        self._junit.finish(self._properties())
        try:
            yield
        finally:
            record_classes(self._run)
            self._run.log.close(**self._end)
            self._write_views(session)
            self._restore_handler()

    def _decide(self, session: pytest.Session) -> None:
        run, ledger, status = self._run, self._run.ledger, int(session.exitstatus)
        ending = RunVerdict(
            ledger=ledger,
            complete=not self._interrupted and status in _MEASURED_ENDS,
            partial_why=run.partial_why,
            other_failures=self._recorder.other_failures,
            not_checked=self._recorder.not_checked,
            failed=bool(session.testsfailed),
            soaked_s=run.offered_s.get("soak", 0.0),
        )
        self._headline = ending.headline
        if ending.complete:
            session.exitstatus = 0 if ending.met else 1 if ledger.judged or session.testsfailed else 5
        elif status in _MEASURED_ENDS:
            session.exitstatus = int(pytest.ExitCode.INTERRUPTED)
        self._end = ending.entry(int(session.exitstatus))

    def _properties(self) -> dict[str, str]:
        run = self._run
        about = {
            "headline": self._headline,
            "scope": self._end["scope_text"],
            "grade": run.log.grade,
            "profile": run.profile,
            "run_id": run.log.run_id,
        }
        return {**{f"rackgate.{name}": text for name, text in about.items()}, **run.judging.measured}

    def _write_views(self, session: pytest.Session) -> None:
        """Write the views; one that breaks is shown and is an internal error: a report must not be missed."""
        run, hook = self._run, self._config.hook
        try:
            written = hook.pytest_rack_views(folder=run.folder, reports=run.registry.reports, view="default")
        except Exception:  # noqa: BLE001  the evidence is complete; what broke stands in the terminal
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            text = run.log.redactor.redact(traceback.format_exc())
            self._views = ["the views could not be written:", *text.splitlines()]
            return
        self._views = [str(path) for path in written or ()]

    def _restore_handler(self) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the headline, the stages and where the evidence is."""
        run, write = self._run, terminalreporter.write_line
        if not run.log.opened:
            return
        terminalreporter.section("rackgate")
        colour = "green" if self._end["accepted"] else "yellow" if self._end["exit_status"] == 0 else "red"
        write(self._headline, bold=True, **{colour: True})
        write(f"{scope_text(run.ledger)}; evidence grade: {run.log.grade.upper()}")
        if run.target.no_cards is not None:
            write("no accelerator found on this machine; to look at, in this order:", yellow=True)
            for step in run.target.no_cards.next_steps:
                write(f"  {run.log.redactor.redact(step)}", yellow=True)
        if run.partial_why:
            write(f"partial run ({', '.join(run.partial_why)}): never certifiable", yellow=True)
        for line in (*self._stage_lines(), self._end["endurance"], *run.notes):
            if line:
                write(line)
        for line in self._remarks()[:_MOST_LINES]:
            write(line, yellow=True)
        for view in self._views:
            write(view)

    def _remarks(self) -> list[str]:
        ledger, measured = self._run.ledger, self._run.judging.measured
        closed: dict[str, list[str]] = {}
        for gate in ledger.gates:
            what = f"quarantined: {gate.entity}" if gate.entity else f"gated: {', '.join(gate.stages)}"
            closed.setdefault(what, []).append(f"{gate.by} ({gate.verdict})")
        lines = [
            f"{what}, by {by[0]}{f' and {len(by) - 1} more' if len(by) > 1 else ''}"
            for what, by in closed.items()
        ]
        lines += [
            f"WARN {check_id}: {measured.get(check_id, '')}"
            for check_id, verdict in ledger.verdicts.items()
            if verdict is Verdict.WARN
        ]
        return lines + [f"not checked: {nodeid}: {why}" for nodeid, why in self._recorder.not_checked.items()]

    def _stage_lines(self) -> list[str]:
        ledger = self._run.ledger
        counted: dict[str, dict[str, int]] = {}
        for check_id, check in ledger.planned.items():
            word = ledger.skipped.get(check_id) or str(ledger.verdicts.get(check_id, Verdict.UNKNOWN))
            words = counted.setdefault(check.slo.stage, {})
            words[word] = words.get(word, 0) + 1
        order = [*STAGES, *(stage for stage in counted if stage not in STAGES)]
        return [
            f"  {stage:<16}{', '.join(f'{number(count)} {word}' for word, count in counted[stage].items())}"
            for stage in order
            if stage in counted
        ]


def _stop(signum: int, frame: FrameType | None) -> None:
    """Stop once; a second signal must not break the teardown."""
    del frame
    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt(f"signal {signum}")
