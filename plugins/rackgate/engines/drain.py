"""Whether an engine that was told to end let its running requests finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Drain", "RunningStream", "judge_drain"]

_KILLED = (137, -9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStream:
    """A request that ran when SIGTERM came: when it ended and the finish reason that it was given."""

    end_s: float
    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The judgement. `why` is empty if nothing was lost."""

    drained: bool
    lost_requests: int
    why: str = ""


def judge_drain(
    streams: Sequence[RunningStream], *, sigterm_s: float, exit_s: float | None, exit_code: int | None
) -> Drain:
    """Judge a drain by the fate of the requests, not by how long the process took to end.

    All moments are seconds on one clock; `exit_s` is None for a process that still runs. A request is
    lost if it ended without a finish reason of its own, or as aborted. No running request: nothing was
    put to the test, and that is no drain.
    """
    if not streams:
        return Drain(drained=False, lost_requests=0, why="no request ran when SIGTERM came")
    lost = [stream for stream in streams if stream.finish_reason in (None, "", "abort", "error")]
    if not lost:
        return Drain(drained=True, lost_requests=0)
    if exit_code in _KILLED:
        why = "killed by stop timeout (137) before drain end"
    else:
        cut_s = min(stream.end_s for stream in lost) - sigterm_s
        lived = "still runs" if exit_s is None else f"lived {exit_s - sigterm_s:g} s"
        why = f"streams cut {cut_s:.1f} s after SIGTERM, process {lived}"
    return Drain(drained=False, lost_requests=len(lost), why=why)
