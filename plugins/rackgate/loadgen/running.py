"""Starts the worker that offers a load, and takes in what it measured; the caller's side."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from rackgate.load import Arrival
from rackgate.loadgen.child import start_child
from rackgate.loadgen.handicap import HANDICAPS
from rackgate.loadgen.now import Now, now_path, read_now
from rackgate.loadgen.plan import Endpoint, Plan
from rackgate.loadgen.spool import read_spool, sample_of_line
from rackgate.loadgen.trace import trace_of
from rackgate.loadgen.words import words_of
from rackgate.measurement import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from rackgate.load import Load
    from rackgate.loadgen.table import SampleTable
    from rackgate.loadgen.trace import Trace
    from rackgate.sample import Sample

__all__ = ["Counters", "OfferedLoad", "RunningLoad", "start_load"]

_GRACE_S = 3.0
_MOST_RECENT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What became of the measured requests; warm-up is in none of them.

    `outcomes` holds the requests that were started, by outcome; `dropped` those that never were.
    """

    scheduled: int = 0
    started: int = 0
    dropped: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def reconciles(self) -> bool:
        """True if scheduled = started + dropped and started = ok + each failure + cancelled, exactly."""
        return self.scheduled == self.started + self.dropped and self.started == sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """A load that was offered, or the reason why it is not known what became of it.

    `start_ns` is the end of warm-up, `end_ns` the last `done`; the steady window ends with the last
    scheduled start. `cpu_s` is what the worker spent between them,
    `loop_lag_p99_ms` how late its event loop was. With a reason, `samples` holds what
    had been finished until then.
    """

    load: Load
    label: str
    engines: tuple[str, ...]
    start_ns: int = 0
    end_ns: int = 0
    steady_start_ns: int = 0
    steady_end_ns: int = 0
    counters: Counters = field(default_factory=Counters)
    samples: SampleTable | None = None
    samples_path: Path | None = None
    peak_in_flight: int = 0
    cpu_s: float = 0.0
    loop_lag_p99_ms: float | None = None
    reason: Reason | None = None
    detail: str = ""


def start_load(
    load: Load,
    endpoints: Sequence[Endpoint],
    *,
    label: str,
    samples_path: Path,
    seed: int,
    look: int = 0,
    requests: int | None = None,
    warmup: bool = True,
    handicap: str = "",
) -> RunningLoad:
    """Start one worker process that offers `load` to all endpoints at once.

    A closed load holds `load.concurrency` requests in flight per endpoint until `requests` (default: the
    last look) have run on each, or `load.duration_s` is over; an open one offers its rate to each.
    `handicap` spoils the instrument for tests: `slow` or `die`.
    Raises `ValueError` for a load that cannot be offered, or says neither when to stop nor where to go.
    """
    if handicap not in HANDICAPS:
        raise ValueError(f"unknown handicap {handicap!r}")
    problems = load.problems
    if problems:
        raise ValueError("\n".join(f"load {load.name!r}: {problem}" for problem in problems))
    planned = requests if requests is not None else (load.planned_requests or None)
    span_s = load.duration_s or sum((phase.duration_s for phase in load.phases), 0.0)
    span_s = span_s or max(load.arrivals_s, default=0.0) / load.trace_speed
    if load.tokenizer is not None:
        words_of(load.tokenizer)
    trace = trace_of(load)
    if trace is not None:
        planned = _within(trace, load, planned)
        if load.arrival is Arrival.TRACE:
            span_s = (trace.moments_s[planned - 1] - trace.moments_s[0]) / load.trace_speed
    if planned is None and (load.open or load.duration_s is None):
        raise ValueError(f"load {load.name!r} says neither how many requests nor for how long")
    if not endpoints:
        raise ValueError(f"load {load.name!r} has no endpoint to go to")
    samples_path.parent.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        load=load,
        endpoints=tuple(endpoints),
        label=label,
        spool=str(samples_path.with_name(f"{samples_path.name}.jsonl")),
        seed=seed,
        look=look,
        requests=planned,
        warmup=warmup,
        handicap=handicap,
        span_s=span_s,
    )
    return RunningLoad(plan, samples_path)


def _within(trace: Trace, load: Load, planned: int | None) -> int:
    """Return how many requests of a trace are offered; raises `ValueError` if it has too few."""
    held = len(trace.requests)
    if planned is not None and planned > held:
        text = f"{planned} requests are planned, {load.trace} holds {held}; to repeat one hits every cache"
        raise ValueError(f"load {load.name!r}: {text}")
    return planned or held


class RunningLoad:
    """A load on its way in a worker process. Leaving the context makes sure that the worker is gone."""

    def __init__(self, plan: Plan, samples_path: Path) -> None:
        self._plan = plan
        self._samples_path = samples_path
        self._spool = Path(plan.spool)
        self._spool.unlink(missing_ok=True)
        self._offered: OfferedLoad | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker lives
        self._said = b""
        self._counted = self._counted_bytes = self._read_bytes = 0
        self._worker = start_child("rackgate.loadgen.worker", stderr=self._errors)
        self._tell((plan.to_json() + "\n").encode())

    @property
    def process_id(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    @property
    def running(self) -> bool:
        """True while the worker is there."""
        return self._worker.poll() is None

    @property
    def progress(self) -> int:
        """How many requests have ended so far, warm-up and dropped ones included."""
        if not self._spool.exists():
            return 0 if self._offered is None or self._offered.samples is None else len(self._offered.samples)
        with self._spool.open("rb") as spool:
            spool.seek(self._counted_bytes)
            new = spool.read()
        self._counted_bytes += len(new)
        self._counted += new.count(b"\n")
        return self._counted

    @property
    def now(self) -> Now | None:
        """Where the load stands; None before the worker has said so."""
        return read_now(now_path(self._spool))

    def recent(self) -> list[Sample]:
        """Return the requests that have ended since this was asked before, the last 2,000 at most."""
        if not self._spool.exists():
            return []
        with self._spool.open("rb") as spool:
            spool.seek(self._read_bytes)
            new = spool.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [sample_of_line(line) for line in whole.splitlines()[-_MOST_RECENT:]]

    def wait(self, limit_s: float) -> bool:
        """Return whether the load has ended, after `limit_s` at most."""
        return self._offered is not None or self._await_result(limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._offered is None:
            self._end_worker(0.5 if kind else _GRACE_S)
        self._tidy()

    def cancel(self) -> None:
        """Tell the worker to end the load; `finish` then returns what there is."""
        self._tell(b"cancel\n")

    def finish(self, timeout_s: float | None = None) -> OfferedLoad:
        """Wait for the load's end and return it; never raises for what rack or worker did.

        After `timeout_s` the load is cancelled and its reason is `timeout`.
        """
        if self._offered is None:
            in_time = self._await_result(self._plan.longest_s if timeout_s is None else timeout_s)
            if not in_time:
                self.cancel()
                self._await_result(self._plan.load.limits.connect_s + _GRACE_S)
            self._end_worker(_GRACE_S)
            self._offered = self._take_in(in_time=in_time)
            self._tidy()
        return self._offered

    def _tell(self, message: bytes) -> None:
        stdin = self._worker.stdin
        if stdin is not None and not stdin.closed:
            with suppress(OSError):  # a worker that is gone is found out by its silence
                stdin.write(message)
                stdin.flush()

    def _await_result(self, limit_s: float) -> bool:
        """Read what the worker says until it ends; False if it still runs after `limit_s`."""
        stdout = self._worker.stdout
        if stdout is None or stdout.closed:
            return True
        deadline = monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, deadline - monotonic())):
                    return False
                piece = os.read(stdout.fileno(), 65536)
                if not piece:
                    return True
                self._said += piece
                if self._said.endswith(b"\n"):
                    return True

    def _end_worker(self, grace_s: float) -> None:
        if self._worker.stdin is not None:
            with suppress(OSError):
                self._worker.stdin.close()
        try:
            self._worker.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._worker.send_signal(signal.SIGKILL)
            self._worker.wait()

    def _tidy(self) -> None:
        now_path(self._spool).unlink(missing_ok=True)
        if self._worker.stdout is not None:
            self._worker.stdout.close()
        self._errors.close()

    def _take_in(self, *, in_time: bool) -> OfferedLoad:
        plan = self._plan
        table, kept, trouble = self._take_samples()
        common: dict[str, Any] = {
            "load": plan.load,
            "label": plan.label,
            "engines": tuple(endpoint.entity for endpoint in plan.endpoints),
            "samples": table,
            "samples_path": self._samples_path if kept else None,
        }
        try:
            result = json.loads(self._said)
        except ValueError:
            return OfferedLoad(**common, reason=Reason.DIED, detail=self._last_words())
        counters = Counters(
            **{name: result[name] for name in ("scheduled", "started", "dropped", "outcomes")}
        )
        reason, detail = (Reason.DIED, trouble) if trouble else (None, "")
        rows = 0 if table is None else len(table.measured)
        if reason is None and rows != counters.scheduled:
            reason, detail = (
                Reason.DIED,
                f"{counters.scheduled} requests were scheduled but {rows} samples kept",
            )
        elif reason is None and not in_time:
            reason, detail = Reason.TIMEOUT, "the load was ended at the caller's limit"
        moments = (
            "start_ns",
            "end_ns",
            "steady_start_ns",
            "steady_end_ns",
            "peak_in_flight",
            "cpu_s",
            "loop_lag_p99_ms",
        )
        return OfferedLoad(
            **common,
            **{name: result[name] for name in moments},
            counters=counters,
            reason=reason,
            detail=detail,
        )

    def _take_samples(self) -> tuple[SampleTable | None, bool, str]:
        """Return the samples, whether they are kept as Parquet, and what went wrong."""
        from rackgate.loadgen.table import SampleTable

        if not self._spool.exists():
            return None, False, ""
        try:
            table = SampleTable.from_samples(list(read_spool(self._spool)), self._plan.load.origin)
        except (OSError, ValueError, TypeError, KeyError) as error:
            return None, False, f"the samples cannot be read: {error!r}"
        try:
            table.write(self._samples_path)
            self._spool.unlink()
        except (OSError, ValueError) as error:
            return table, False, f"the samples cannot be kept: {error}"
        return table, True, ""

    def _last_words(self) -> str:
        self._errors.seek(0)
        tail = self._errors.read()[-2000:].decode("utf-8", "replace").strip()
        code = self._worker.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        last = tail.splitlines()[-1] if tail else ""
        return f"the load worker died ({how}) {last}".strip()
