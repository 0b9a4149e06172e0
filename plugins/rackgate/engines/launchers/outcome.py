"""How a launch went wrong, as `LaunchFailed`: what ended it, the log's last lines, and what to try."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rackgate.engines.catalogue import kind_of
from rackgate.engines.launchers.secrets import hidden_values
from rackgate.engines.launchers.signatures import Explanation, explain
from rackgate.engines.probe import EngineProbe
from rackgate.evidence.redaction import Redactor, printable, secret_values
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.target import EngineSpec

_TAIL_BYTES = 65_536
_TAIL_LINES = 40


class ExplainedFailure(LaunchFailed):
    """A launch that failed; `explanation` is the known failure that its words show, if any."""

    def __init__(
        self, message: str, *, layer: str, hint: str, log_tail: str, explanation: Explanation | None
    ) -> None:
        super().__init__(message, layer=layer, hint=hint, log_tail=log_tail)
        self.explanation = explanation


def _known(spec: EngineSpec, text: str) -> Explanation | None:
    """Return the known failure, those of the catalogue's engine first."""
    entry = kind_of(spec.settings)
    return explain(text, entry.failures if entry else ())


def redacted(text: str, values: Iterable[str] = ()) -> str:
    """Return the text without values of secret-looking variables, nor the values given."""
    return Redactor([*secret_values(os.environ), *values]).redact(printable(text))


def tail_of_file(path: Path) -> bytes:
    """Return the last 64 KiB of a file, empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of a log without secrets: `shown` is its last 40 lines, `whole` its last 64 KiB."""

    shown: str
    whole: str


def log_end(raw: bytes, secrets: Iterable[str] = ()) -> LogEnd:
    """Return the end of a log's bytes: the cause is often far above the last lines."""
    whole = redacted(_lines(raw), secrets)
    return LogEnd(shown="\n".join(whole.rstrip().split("\n")[-_TAIL_LINES:]), whole=whole)


def log_tail(raw: bytes, secrets: Iterable[str] = ()) -> str:
    """Return the last 40 lines of a log's bytes; a cut character becomes U+FFFD, a secret a mark.

    Progress bars write many states into one line with carriage returns; each counts as a line.
    """
    return log_end(raw, secrets).shown


def _lines(raw: bytes) -> str:
    return raw[-_TAIL_BYTES:].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def ended(spec: EngineSpec, what: str, status: str, after_s: float, log: LogEnd) -> ExplainedFailure:
    """Return the failure of an engine that ended while we waited for its first token."""
    known = _known(spec, f"{log.whole}\n{status}")
    last = next((line.strip() for line in reversed(log.shown.splitlines()) if line.strip()), "")
    said = f"; it said last: {last[:200]}" if last else "; its log is empty"
    if known and known.line not in (last, status):
        said = f"; it said: {known.line}"
    return ExplainedFailure(
        f"{spec.title}: the {what} ended with {status} after {after_s:.1f} s{said}",
        layer=known.layer if known else "service",
        hint=known.hint if known else "see the log's last lines for the cause",
        log_tail=log.shown,
        explanation=known,
    )


def not_ready(spec: EngineSpec, probe: EngineProbe, deadline_s: float, log: LogEnd) -> ExplainedFailure:
    """Return the failure of an engine that runs and gives no token."""
    layer, hint = probe.layer_failed, probe.hint
    if layer == "network":  # it is ours and on this machine: the network is not at fault
        layer, hint = (
            "service",
            "it runs and does not listen: raise ready_timeout_s if its log shows progress",
        )
    known = _known(spec, log.whole) if layer == "service" else None
    waited = "" if probe.settled else f"no token within {deadline_s:g} s: "
    return ExplainedFailure(
        f"{spec.title}: {waited}{probe.message}",
        layer=layer,
        hint=known.hint if known else hint,
        log_tail=log.shown,
        explanation=known,
    )


def start_refused(spec: EngineSpec, what: str, reason: str, hint: str) -> ExplainedFailure:
    """Return the failure of an engine that could not even be started."""
    known = _known(spec, reason)
    said = redacted(reason, hidden_values(spec))
    return ExplainedFailure(
        f"{spec.title}: the {what} could not be started: {said}",
        layer=known.layer if known else "service",
        hint=known.hint if known else hint,
        log_tail=said,
        explanation=known,
    )
