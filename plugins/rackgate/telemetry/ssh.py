"""A remote node through the system's OpenSSH client, so that its configuration keeps working.

ssh_config, ProxyJump, agents, Kerberos and control sockets are the client's own. Host keys are checked,
nothing is ever asked of a person, and one connection serves all commands to a node.
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rackgate.measurement import Reason
from rackgate.telemetry.runner import Command, Ran, run_process, with_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SshRunner"]

_LIMIT_BYTES = 1 << 20
_GRACE_S = 2.0
_TRANSPORT = 255
_CAUSES = (
    ("Host key verification failed", Reason.UNREACHABLE, "add the node's host key to known_hosts"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", Reason.UNREACHABLE, "its host key is another than known"),
    ("Permission denied", Reason.NO_PERMISSION, "give this user's key access to the node"),
    ("Could not resolve", Reason.UNREACHABLE, "the name is unknown here; see ssh_config"),
    ("Connection refused", Reason.UNREACHABLE, "no SSH server listens there"),
    ("timed out", Reason.TIMEOUT, "the node or its jump host does not answer"),
    ("No route to host", Reason.UNREACHABLE, "the network does not lead there"),
    ("Connection closed", Reason.UNREACHABLE, "the node or its jump host hung up"),
)


class SshRunner:
    """One node. `destination` is what one would give to `ssh`; `config` another file than the user's."""

    def __init__(
        self,
        destination: str,
        *,
        name: str | None = None,
        config: Path | None = None,
        sudo: bool = False,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.name = name or destination
        self._destination = destination
        self._config = config
        self._sudo = sudo
        self._connect_timeout_s = connect_timeout_s
        self._sockets: str | None = None
        self._options: tuple[str, ...] | None = None

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Run it there, with `sudo -n` if it is refused and that is allowed."""

        def remote(argv: Sequence[str]) -> Ran:
            return self._script(shlex.join(argv), deadline_s, argv[0], command.silence_s)

        return with_root(remote, command, sudo=self._sudo, is_root=False)

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Read all files in one command; those that may not be read say so.

        A node that does not answer gives its reason under every pattern.
        """
        mark = secrets.token_hex(8)
        script = (
            f'for f in {" ".join(_pattern(one) for one in patterns)}; do [ -f "$f" ] || continue; '
            f'if [ -r "$f" ]; then echo "{mark} $f"; head -c {_LIMIT_BYTES} "$f" 2>/dev/null; '
            f'else echo "{mark}! $f"; fi; echo; done; echo "{mark}end"'
        )
        ran = self._script(f"sh -c {shlex.quote(script)}", deadline_s, "sh")
        if f"{mark}end" not in ran.text:
            reason = ran.reason or Reason.DIED
            cut = Ran(reason=reason, detail=ran.detail or "the node's answer was cut off")
            return dict.fromkeys(patterns, cut)
        return _files(ran.text, mark)

    def close(self) -> None:
        """End the shared connection."""
        if self._sockets is None:
            return
        ended = [*self._client(), "-O", "exit", "--", self._destination]
        run_process(ended, _GRACE_S)
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets, self._options = None, None

    def _script(self, script: str, deadline_s: float, what: str, silence_s: float | None = None) -> Ran:
        remote = f"exec timeout -k 1 {math.ceil(deadline_s)} {script}"
        argv = [*self._client(), "--", self._destination, remote]
        ran = run_process(argv, deadline_s + _GRACE_S, silence_s=silence_s)
        if ran.reason is Reason.TOOL_MISSING and ran.status is None:
            return Ran(reason=Reason.TOOL_MISSING, detail="the OpenSSH client is not installed here")
        if ran.status == _TRANSPORT:
            return self._unreached(ran)
        if ran.reason is Reason.TIMEOUT:
            text = f"{self.name}: {what} did not end within {deadline_s:g} s"
            if "printed nothing" in ran.detail:
                text = f"{self.name}: {what} printed nothing for {silence_s:g} s"
            return Ran(text=ran.text, reason=Reason.TIMEOUT, detail=text, status=ran.status)
        if ran.status == 127:
            return Ran(
                reason=Reason.TOOL_MISSING, detail=f"{what} is not installed on {self.name}", status=127
            )
        return ran

    def _unreached(self, ran: Ran) -> Ran:
        lines = [line for line in ran.error.splitlines() if not line.startswith(("Warning:", "@"))]
        said = lines[-1].strip() if lines else "the connection failed, or a signal ended the command"
        for words, reason, cure in _CAUSES:
            if words in ran.error:
                return Ran(reason=reason, detail=f"{self.name}: {said} ({cure})", error=ran.error)
        return Ran(reason=Reason.UNREACHABLE, detail=f"{self.name}: {said}", error=ran.error)

    def _client(self) -> tuple[str, ...]:
        if self._options is None:
            self._options = self._found_options()
        return self._options

    def _found_options(self) -> tuple[str, ...]:
        options = ["ssh", "-T", "-x", *(() if self._config is None else ("-F", str(self._config)))]
        settings = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": str(math.ceil(self._connect_timeout_s)),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "2",
            "LogLevel": "ERROR",
        }
        if not self._has_sockets_of_its_own(options):
            # The path of a Unix socket may have 108 bytes: a short folder, readable to us alone.
            self._sockets = self._sockets or tempfile.mkdtemp(prefix="rg-ssh-", dir=_short_folder())
            settings |= {
                "ControlMaster": "auto",
                "ControlPersist": "60",
                "ControlPath": f"{self._sockets}/%C",
            }
        return (*options, *(part for name, value in settings.items() for part in ("-o", f"{name}={value}")))

    def _has_sockets_of_its_own(self, options: Sequence[str]) -> bool:
        """Ask the client whether the user's configuration shares connections already."""
        try:
            said = subprocess.run(
                [*options, "-G", "--", self._destination],
                capture_output=True,
                text=True,
                check=False,
                timeout=_GRACE_S + 3,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return False
        lines = dict(line.partition(" ")[::2] for line in said.splitlines())
        return lines.get("controlmaster", "false") in ("auto", "true", "yes") and "controlpath" in lines


def _short_folder() -> str | None:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return runtime if runtime and len(runtime) < 40 and Path(runtime).is_dir() else None


def _pattern(pattern: str) -> str:
    """Quote a shell pattern, all but its wildcards."""
    return "".join(part if part in "*?" else shlex.quote(part) for part in _parts(pattern))


def _parts(pattern: str) -> list[str]:
    parts = [""]
    for letter in pattern:
        if letter in "*?":
            parts += [letter, ""]
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _files(text: str, mark: str) -> dict[str, Ran]:
    found: dict[str, Ran] = {}
    for piece in text.split(mark)[1:]:
        head, _, body = piece.partition("\n")
        if head.startswith("! "):
            found[head[2:]] = Ran(reason=Reason.NO_PERMISSION, detail=f"{head[2:]} may not be read")
        elif head.startswith(" "):
            found[head[1:]] = Ran(text=body.removesuffix("\n"), status=0)
    return found
