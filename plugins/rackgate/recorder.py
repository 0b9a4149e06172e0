"""What pytest says of an acceptance run: honest words per item, JUnit identity, summary, views, exit code."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rackgate.message import headline, number, scope_text
from rackgate.raised import Unmet
from rackgate.redaction import bounded, printable
from rackgate.slo import STAGES
from rackgate.stages import CHECK, STAGE
from rackgate.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from _pytest._code.code import ReprFileLocation
    from _pytest._io import TerminalWriter
    from _pytest.terminal import TerminalReporter

    from rackgate.options import Options
    from rackgate.run import Run

__all__ = ["Recorder"]

_TEXT_BYTES = 262_144
_LETTERS = {Verdict.PASS: ".", Verdict.WARN: "w", Verdict.UNKNOWN: "?", Verdict.FAIL: "F"}


@dataclass(frozen=True, slots=True)
class _Message:
    """A failure as text alone: no traceback of ours between the reader and the verdict."""

    text: str
    reprcrash: ReprFileLocation

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: TerminalWriter) -> None:
        """Write the text."""
        for line in self.text.splitlines():
            writer.line(line)


class Recorder:
    """Watches the items of an acceptance run."""

    def __init__(self, run: Run, options: Options, config: pytest.Config) -> None:
        self._run = run
        self._options = options
        self._config = config
        self._stage = ""
        self._stage_began_s = 0.0
        self._interrupted = False
        self._complete = False
        self._headline = ""
        self._views: list[str] = []
        self._previous_handler: Any = None

    # ------------------------------------------------------------ life of the run

    def pytest_sessionstart(self) -> None:
        """Turn SIGTERM into an orderly stop: teardown runs, JUnit is written, the exit code is not 0."""
        self._previous_handler = signal.signal(signal.SIGTERM, _stop)

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the run was stopped from outside."""
        self._interrupted = True

    def pytest_report_header(self) -> list[str]:
        """Show what was resolved and where it came from."""
        run, options = self._run, self._options
        target = run.target
        cards = f"{len(target.cards)} cards on {len(target.nodes)} nodes, " if target.cards else ""
        lines = [
            (
                f"rackgate: target {target.name} ({cards}{len(target.engines)} engines), profile {run.profile},"
                f" seed {run.seed}, evidence {run.folder}"
            )
        ]
        if target.grade == "simulated":
            lines.append(f"rackgate: SIMULATED rack, scenario {options.scenario}: never valid for sign-off")
        given = {
            name: origin
            for name, origin in options.origins.items()
            if origin not in ("default", "command line")
        }
        lines += [f"rackgate: --rack-{name} from {origin}" for name, origin in given.items()]
        return lines

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Record where a stage begins and ends."""
        stage = item.stash.get(STAGE, "")
        if stage != self._stage:
            self._end_stage()
            if stage:
                self._stage, self._stage_began_s = stage, self._run.elapsed_s
                self._run.record("stage", stage=stage, phase="begin", text=f"stage {stage} begins")

    def _end_stage(self) -> None:
        if self._stage:
            seconds = self._run.elapsed_s - self._stage_began_s
            self._run.record("stage", stage=self._stage, phase="end", duration_s=seconds, text="")
        self._stage = ""

    # ------------------------------------------------------------ one item

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show a verdict as its message alone, record what died, take secrets out of every text."""
        report = yield
        check = item.stash.get(CHECK, None)
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, Unmet):
            report.longrepr = self._message(str(error), item)
        elif check is not None and report.failed and check.id not in self._run.ledger.verdicts:
            self._run.died(check, str(report.longrepr)[-2000:])
            text = f"UNKNOWN {check.id}: died: {type(error).__name__}: {error}\n{report.longreprtext}"
            report.longrepr = self._message(text, item)
        elif report.longrepr is not None and not report.skipped:
            self._clean(report, item)
        report.sections = [(name, self._text(text)) for name, text in report.sections]
        if check is not None:
            self._name_in_junit(item, check.id, check.slo.stage)
        return report

    def _clean(self, report: pytest.TestReport, item: pytest.Item) -> None:
        text = report.longreprtext
        cleaned = self._text(text)
        if cleaned != text:
            report.longrepr = self._message(cleaned, item)

    def _message(self, text: str, item: pytest.Item) -> Any:
        from _pytest._code.code import ReprFileLocation

        text = self._text(text)
        path, line, _ = item.location
        return _Message(text, ReprFileLocation(path, line or 0, text.split("\n", 1)[0]))

    def _text(self, text: str) -> str:
        return printable(bounded(self._run.redactor.redact(text), _TEXT_BYTES))

    def _name_in_junit(self, item: pytest.Item, name: str, stage: str) -> None:
        from _pytest.junitxml import xml_key

        xml = self._config.stash.get(xml_key, None)
        if xml is not None:
            reporter = xml.node_reporter(item.nodeid)
            reporter.add_attribute("classname", f"rackgate.{stage}")
            reporter.add_attribute("name", name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show UNKNOWN and WARN as what they are."""
        if report.when == "call" and report.failed and report.longreprtext.startswith("UNKNOWN"):
            return "failed", "?", "UNKNOWN"
        if report.skipped and "UNKNOWN: gated" in report.longreprtext:
            return "skipped", "g", "GATED"
        return None

    # ------------------------------------------------------------ the end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Decide the exit code, write the last record, then the views once JUnit is on disk."""
        self._end_stage()
        self._decide(session)
        yield
        self._write_views()
        signal.signal(signal.SIGTERM, self._previous_handler or signal.SIG_DFL)

    def _decide(self, session: pytest.Session) -> None:
        ledger, config = self._run.ledger, self._config
        status = int(session.exitstatus)
        if config.getoption("collectonly"):
            self._run.abandon()
            return
        self._complete = not self._interrupted and status in (0, 1, 5)
        partial = bool(self._run.partial_why)
        self._headline = headline(
            ledger, complete=self._complete, partial=partial, failures=session.testsfailed
        )
        accepted = (
            self._complete and ledger.judged > 0 and ledger.verdict.accepted and not session.testsfailed
        )
        if self._complete:
            session.exitstatus = 0 if accepted else 1 if ledger.judged or session.testsfailed else 5
        self._run.close(
            verdict=str(ledger.verdict),
            accepted=accepted and not partial,
            headline=self._headline,
            scope_text=scope_text(ledger, self._options.exclude),
            counts=ledger.counts(),
            exit_status=int(session.exitstatus),
            complete=self._complete,
            partial=partial,
            partial_why=list(self._run.partial_why),
        )
        self._suite_properties()

    def _suite_properties(self) -> None:
        """Put what was measured on the test suite: properties under a test case break strict consumers."""
        from _pytest.junitxml import xml_key

        xml = self._config.stash.get(xml_key, None)
        if xml is None:
            return
        run = self._run
        about = {
            "headline": self._headline,
            "grade": run.target.grade,
            "profile": run.profile,
            "run_id": run.run_id,
        }
        for name, value in about.items():
            xml.add_global_property(f"rackgate.{name}", printable(value))
        for check_id, text in run.measured.items():
            xml.add_global_property(check_id, printable(text))

    def _write_views(self) -> None:
        if self._config.getoption("collectonly"):
            return
        run, hook = self._run, self._config.hook
        written = hook.pytest_rack_views(folder=run.folder, reports=run.registry.reports, view="default")
        self._views = [str(path) for path in written or ()]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the headline, the stages and where the evidence is."""
        if self._config.getoption("collectonly"):
            return
        run, write = self._run, terminalreporter.write_line
        terminalreporter.section("rackgate")
        good = self._headline.startswith("ACCEPTED")
        write(self._headline, bold=True, green=good, red=not good)
        write(f"{scope_text(run.ledger, self._options.exclude)}; evidence grade: {run.target.grade.upper()}")
        if run.partial_why:
            write(f"partial run ({', '.join(run.partial_why)}): never certifiable", yellow=True)
        for stage in STAGES:
            text = self._stage_line(stage)
            if text:
                write(text)
        for gate in run.ledger.gates:
            what = gate.entity or "later stages"
            write(f"quarantined: {what}, by {gate.by} ({gate.verdict})", yellow=True)
        for view in self._views:
            write(view)

    def _stage_line(self, stage: str) -> str:
        ledger = self._run.ledger
        mine = {check_id: check for check_id, check in ledger.planned.items() if check.slo.stage == stage}
        if not mine:
            return ""
        counted: dict[str, int] = {}
        for check_id in mine:
            word = ledger.skipped.get(check_id) or str(ledger.verdicts.get(check_id, Verdict.UNKNOWN))
            counted[word] = counted.get(word, 0) + 1
        return f"  {stage:<16}{', '.join(f'{number(count)} {word}' for word, count in counted.items())}"


def _stop(signum: int, frame: FrameType | None) -> None:
    """Stop once; a second signal must not break the teardown."""
    del frame
    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt(f"signal {signum}")
