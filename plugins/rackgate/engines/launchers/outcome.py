"""How a launch went wrong, as `LaunchFailed`: what ended it, the log's last lines, and what to try."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rackgate.engine import LaunchFailed
from rackgate.engines.launchers.settings import texts
from rackgate.engines.launchers.signatures import explain
from rackgate.redaction import Redactor, printable, secret_values

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rackgate.engines.readiness import EngineProbe
    from rackgate.target import EngineSpec

__all__ = [
    "ended",
    "key_headers",
    "log_tail",
    "not_ready",
    "redacted",
    "secret_names",
    "start_refused",
    "tail_of_file",
]

_TAIL_BYTES = 65_536
_TAIL_LINES = 40


def key_headers(spec: EngineSpec) -> dict[str, str]:
    """Return the headers that carry the engine's key; raises `LaunchFailed` if its variable is not set."""
    if spec.api_key_env is None:
        return {}
    key = os.environ.get(spec.api_key_env, "")
    if not key:
        raise LaunchFailed(
            f"engine {spec.name}: the environment variable {spec.api_key_env} is not set",
            layer="service",
            hint=f"export {spec.api_key_env} with the engine's key",
        )
    return {"authorization": f"Bearer {key}"}


def secret_names(spec: EngineSpec) -> tuple[str, ...]:
    """Return the variables whose values no text of this engine may show, whatever they are called."""
    own = (spec.api_key_env,) if spec.api_key_env else ()
    return (*own, *texts(spec.settings, "env_from"))


def redacted(text: str, names: Iterable[str] = ()) -> str:
    """Return the text without values of secret-looking variables, nor of the variables named."""
    values = [os.environ[name] for name in names if name in os.environ]
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


def log_tail(raw: bytes, secrets: Iterable[str] = ()) -> str:
    """Return the last 40 lines of a log's bytes; a cut character becomes U+FFFD, a secret a mark.

    Progress bars write many states into one line with carriage returns; each counts as a line.
    """
    text = raw[-_TAIL_BYTES:].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return redacted("\n".join(text.rstrip().split("\n")[-_TAIL_LINES:]), secrets)


def ended(spec: EngineSpec, what: str, status: str, after_s: float, tail: str) -> LaunchFailed:
    """Return the failure of an engine that ended while we waited for its first token."""
    known = explain(tail)
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")
    said = f"; it said last: {last[:200]}" if last else "; its log is empty"
    return LaunchFailed(
        f"engine {spec.name}: the {what} ended with {status} after {after_s:.1f} s{said}",
        layer=known.layer if known else "service",
        hint=known.hint if known else "see the log's last lines for the cause",
        log_tail=tail,
    )


def not_ready(spec: EngineSpec, probe: EngineProbe, deadline_s: float, tail: str) -> LaunchFailed:
    """Return the failure of an engine that runs and gives no token."""
    layer, hint = probe.layer_failed, probe.hint
    if layer == "network":  # it is ours and on this machine: the network is not at fault
        layer, hint = (
            "service",
            "it runs and does not listen: raise ready_timeout_s if its log shows progress",
        )
    known = explain(tail) if layer == "service" else None
    waited = "" if probe.settled else f"no token within {deadline_s:g} s: "
    return LaunchFailed(
        f"engine {spec.name}: {waited}{probe.message}",
        layer=layer,
        hint=known.hint if known else hint,
        log_tail=tail,
    )


def start_refused(spec: EngineSpec, what: str, reason: str, hint: str) -> LaunchFailed:
    """Return the failure of an engine that could not even be started."""
    known = explain(reason)
    return LaunchFailed(
        f"engine {spec.name}: the {what} could not be started: {redacted(reason)}",
        layer=known.layer if known else "service",
        hint=known.hint if known else hint,
        log_tail=redacted(reason),
    )
