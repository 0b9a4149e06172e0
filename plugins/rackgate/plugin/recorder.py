"""Reports of items: a verdict is shown as its message alone, without secrets; progress on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

from rackgate.evidence.redaction import bounded, printable
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict
from rackgate.plugin.errors import Unmet
from rackgate.plugin.items import CHECK, LEDGER_TEST, STAGE
from rackgate.plugin.progress_line import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest._io import TerminalWriter

    from rackgate.nouns.slo import Check
    from rackgate.plugin.junit import JUnit
    from rackgate.plugin.options import Options
    from rackgate.run.run import Run


_TEXT_BYTES = 262_144
_TRACEBACK_BYTES = 8_192
_WARNED = "rack_warned"
_QUIET = -1
"""`-q`: fewer lines per test, but a run of hours still says what it does; `-qq` is silent."""


@dataclass(eq=False)
class _Message(TerminalRepr):
    """A failure shown as text, without a traceback."""

    text: str
    reprcrash: ReprFileLocation

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: TerminalWriter) -> None:
        """Write the text."""
        for line in self.text.splitlines():
            writer.line(line)


class Recorder:
    """Watches the items of an acceptance run.

    `other_failures` names the failed tests that are no checks; `not_checked` the tests marked as
    acceptance that were skipped or expected to fail, with the reason that they gave.
    """

    def __init__(self, run: Run, options: Options, config: pytest.Config, junit: JUnit) -> None:
        self.other_failures: set[str] = set()
        self.not_checked: dict[str, str] = {}
        self._run = run
        self._options = options
        self._config = config
        self._junit = junit
        self._stage = ""
        self._stage_began_s = 0.0

    def pytest_sessionstart(self) -> None:
        """Show the progress of long measurements."""
        if self._config.get_verbosity() >= _QUIET:
            self._run.progress.say = self._say
            self._run.progress.display = ProgressLine(self._config.pluginmanager, self._say)

    def _say(self, text: str) -> None:
        manager = self._config.pluginmanager
        reporter, capture = manager.get_plugin("terminalreporter"), manager.get_plugin("capturemanager")
        if reporter is None or capture is None:
            return
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"  {self._run.log.elapsed_s:5.0f} s  {self._text(text)}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Repeat the file's name where progress came between it and the first letter."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        path, _, name = report.nodeid.partition("::")
        if reporter is None or reporter.currentfspath is not None or not (name and reporter.showfspath):
            return
        if report.when == "call" or not report.passed:
            reporter.write(f"{path} ")
            reporter.currentfspath = self._config.rootpath / path

    def pytest_report_header(self) -> list[str]:
        """Show what was resolved and where it came from."""
        run, options = self._run, self._options
        target = run.target
        cards = f"{len(target.cards)} cards on {len(target.nodes)} nodes, " if target.cards else ""
        lines = [
            (
                f"rackgate: target {target.name} ({cards}{len(target.engines)} engines),"
                f" profile {run.profile}, seed {run.seed}, evidence {run.folder}"
            )
        ]
        if target.no_cards is not None:
            lines.append("rackgate: this machine, on which no accelerator was found")
        if target.grade == "simulated":
            scenario = f", scenario {options.scenario}" if target.made_here else ""
            lines.append(f"rackgate: SIMULATED rack{scenario}: never valid for sign-off")
        if options.shown():
            lines.append(f"rackgate: {', '.join(options.shown())}")
        if run.ledger.left_out:
            left_out = [f"{unit} ({why})" for unit, why in run.ledger.left_out.items()]
            lines.append(f"rackgate: left out: {', '.join(left_out)}")
        return [self._text(line) for line in lines]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Record where a stage begins and ends, and give the item its name in JUnit."""
        stage = item.stash.get(STAGE, "")
        if stage != self._stage:
            self.end_stage()
            if stage:
                self._stage, self._stage_began_s = stage, self._run.log.elapsed_s
                self._run.log.begin_stage(stage)
        check = item.stash.get(CHECK, None)
        if check is not None:
            self._junit.name(item.nodeid, f"rackgate.{check.slo.stage}", check.id)
        elif item.name == LEDGER_TEST:
            self._junit.name(item.nodeid, "rackgate.ledger", "every asked check has a record")

    def end_stage(self) -> None:
        """Record the end of the stage that runs, if any."""
        if self._stage:
            seconds = self._run.log.elapsed_s - self._stage_began_s
            self._run.record("stage", stage=self._stage, phase="end", duration_s=seconds, text="")
        self._stage = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show a verdict as its message alone; a check without a verdict is UNKNOWN, whatever pytest says."""
        report = yield
        check = item.stash.get(CHECK, None)
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, Unmet):
            self._fail(report, str(error), item)
        elif check is not None:
            self._answer(check, error, report, item)
        else:
            self._note(report, item)
        self._clean(report, item)
        return report

    def _answer(
        self, check: Check, error: BaseException | None, report: pytest.TestReport, item: pytest.Item
    ) -> None:
        verdict = self._run.ledger.verdicts.get(check.id)
        if report.when == "teardown":
            if report.failed:
                self.other_failures.add(item.nodeid)
        elif report.failed and (verdict is None or verdict.accepted):
            text = self._text(report.longreprtext)
            self._run.event("died", f"{check.id}\n{bounded(text, _TRACEBACK_BYTES)}")
            message = self._run.judging.unanswered(
                check, Reason.DIED, f"{type(error).__name__}: {_line(error)}"
            )
            self._fail(report, f"{message}\n\n{text}", item)
        elif verdict is None and (report.skipped or report.when == "call"):
            why, reason = "the test ended without asking for a verdict", Reason.ABSENT
            if report.skipped:
                why, reason = f"the test was {_how_skipped(report)}", Reason.EXCLUDED
            self._fail(report, self._run.judging.unanswered(check, reason, why), item)
        if report.when == "call" and self._run.ledger.verdicts.get(check.id) is Verdict.WARN:
            vars(report)[_WARNED] = True

    def _fail(self, report: pytest.TestReport, text: str, item: pytest.Item) -> None:
        """Make the report a failure that begins with its word; no mark may turn it into anything else."""
        report.outcome = "failed"
        report.longrepr = self._message(text, item)
        if hasattr(report, "wasxfail"):
            del report.wasxfail

    def _note(self, report: pytest.TestReport, item: pytest.Item) -> None:
        if report.failed and (item.name != LEDGER_TEST or report.when == "teardown"):
            self.other_failures.add(item.nodeid)
        if report.skipped and item.get_closest_marker("rack_acceptance") is not None:
            self._not_checked(item.nodeid, _how_skipped(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that left itself out although it holds tests marked as acceptance."""
        if not report.skipped:
            return
        path = self._config.rootpath / report.nodeid.split("::")[0]
        if path.is_file() and "rack_acceptance" in path.read_text(encoding="utf-8", errors="replace"):
            self.not_checked[report.nodeid] = self._text(_how_skipped(report))

    def _not_checked(self, nodeid: str, why: str) -> None:
        self.not_checked[nodeid] = self._text(why)
        self._run.event("not_checked", f"{nodeid}: {why}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Take secrets out of what a module says when it cannot be collected."""
        report = yield
        if report.failed and self._text(report.longreprtext) != report.longreprtext:
            report.longrepr = self._text(report.longreprtext)
        return report

    def _clean(self, report: pytest.TestReport, item: pytest.Item) -> None:
        """Take secrets, and what XML cannot carry, out of every text of a report."""
        if isinstance(report.longrepr, tuple):
            path, line, reason = report.longrepr
            report.longrepr = (path, line, self._text(reason))
        elif report.longrepr is not None and self._text(report.longreprtext) != report.longreprtext:
            crash = getattr(report.longrepr, "reprcrash", None)
            report.longrepr = self._message(report.longreprtext, item, getattr(crash, "message", ""))
        if hasattr(report, "wasxfail"):
            report.wasxfail = self._text(report.wasxfail)
        report.sections = [(name, self._text(text)) for name, text in report.sections]
        report.user_properties = [(name, self._text(str(value))) for name, value in report.user_properties]

    def _message(self, text: str, item: pytest.Item, summary: str = "") -> _Message:
        text = self._text(text)
        path, line, _ = item.location
        return _Message(
            text, ReprFileLocation(path, line or 0, self._text(summary) or text.split("\n", 1)[0])
        )

    def _text(self, text: str) -> str:
        return printable(bounded(text, _TEXT_BYTES, self._run.log.redactor))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show UNKNOWN, WARN and what was gated as what they are."""
        if report.when != "teardown" and report.failed and report.longreprtext.startswith("UNKNOWN"):
            return ("failed" if report.when == "call" else "error"), "?", "UNKNOWN"
        if report.skipped and "UNKNOWN: gated" in report.longreprtext:
            return "skipped", "g", "GATED"
        if report.passed and _WARNED in vars(report):
            return "passed", "w", "WARN"
        return None


def _how_skipped(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail (xfail): {report.wasxfail or 'no reason given'}"
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return f"skipped: {str(reason).removeprefix('Skipped: ') or 'no reason given'}"


def _line(error: BaseException | None) -> str:
    return str(error).strip().split("\n", 1)[0][:500]
