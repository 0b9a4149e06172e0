"""One acceptance run: what was asked, its evidence, its judging, and what its stages leave for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackgate.config.acceptance_file import Acceptance
from rackgate.evidence.redaction import Redactor
from rackgate.hosts.facts.fact import Fact
from rackgate.judging.ledger import Ledger
from rackgate.loadgen.progress import NoProgress, ProgressDisplay
from rackgate.metrics.economy import Economies
from rackgate.metrics.observation import Observation
from rackgate.metrics.registry import Registry
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Measurement
from rackgate.nouns.slo import Check
from rackgate.nouns.target import Target
from rackgate.run.judging import Judging
from rackgate.run.log import EvidenceLog
from rackgate.run.payloads import acceptance_entry, host_entry, target_entry


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a person sees while a run goes on.

    `say` writes a line, `display` shows the progress of a load, `hottest` returns the hottest card in words.
    """

    say: Callable[[str], None] = lambda _text: None
    display: ProgressDisplay = field(default_factory=NoProgress)
    hottest: Callable[[], str] = lambda: ""


class Run:
    """A run in progress. `log` writes its evidence, `judging` its verdicts, `progress` shows where it is.

    What its parts leave here for each other, and who sets it:

    - `instrument_fault`: what a scenario does to the load generator, "" for nothing; plugin.startup.
    - `hung`: by node, the facts whose commands hung when `local` looked, not to be waited for again;
      plugin.startup.
    - `partial_why`: the options that leave checks out; plugin.items.
    - `held`: by `NODE` or `NODE container`, the check that keeps its engines from being started;
      stages.preflight.
    - `cards_lost`: returns how engines lost their cards, by entity; stages.site.
    - `notes`: lines for the end of the terminal's summary; stages.site, stages.evidence_grade.
    - `offered_s`: by stage, for how many seconds load was offered; stages.load_runs.
    - `economies`: energy and cost of all loads, by class of work; stages.economy.
    - `faults`: the timelines of what was injected, in order; faults.injection.
    """

    def __init__(
        self,
        *,
        folder: Path,
        target: Target,
        acceptance: Acceptance,
        registry: Registry,
        ledger: Ledger,
        redactor: Redactor,
        seed: int,
        on_record: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.log = EvidenceLog(folder, redactor, target.grade, on_record)
        self.judging = Judging(registry.metrics, ledger, self.log)
        self.progress = Progress()
        self.folder = folder
        self.evidence = self.log.evidence
        self.target = target
        self.acceptance = acceptance
        self.registry = registry
        self.ledger = ledger
        self.seed = seed
        self.instrument_fault = ""
        self.hung: Mapping[str, Mapping[str, Fact]] = {}
        self.partial_why: tuple[str, ...] = ()
        self.held: dict[str, str] = {}
        self.cards_lost: Callable[[], dict[str, str]] = dict
        self.notes: list[str] = []
        self.offered_s: dict[str, float] = {}
        self.economies = Economies()
        self.faults: tuple[FaultTimeline, ...] = ()

    @property
    def profile(self) -> str:
        """The profile's name."""
        return self.acceptance.profile

    def open(self, *, stages: tuple[str, ...], facts: Mapping[str, Any]) -> None:
        """Make the folder and write the first record: what was asked, of what, with which files."""
        self.log.open(
            profile=self.profile,
            grade=self.target.grade,
            seed=self.seed,
            stages=list(stages),
            target=target_entry(self.target),
            **acceptance_entry(self.acceptance),
            host=host_entry(),
            continues=None,
            **facts,
        )

    def record(self, kind: str, **payload: Any) -> None:
        """Append one record to the evidence. Raises `NotOpen` before `open`."""
        self.log.record(kind, **payload)

    def event(self, name: str, text: str) -> None:
        """Record anything that is worth a line."""
        self.log.event(name, text)

    def measure(self, check: Check, observation: Observation) -> Measurement:
        """Return what the check's row asks for, from what was observed."""
        return self.judging.measure(check, observation)

    def say(self, text: str) -> None:
        """Show a line of progress."""
        self.progress.say(text)
