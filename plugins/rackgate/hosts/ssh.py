"""A remote node through the system's OpenSSH client, so that its configuration keeps working.

ssh_config, ProxyJump, agents, Kerberos and control sockets are the client's own. Host keys are checked,
nothing is ever asked of a person, and one connection serves all commands of this process to a node.
"""

from __future__ import annotations

import math
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rackgate.hosts.runner import SBIN, Command, Ran, run_process, with_root
from rackgate.hosts.shell_files import read_files
from rackgate.hosts.ssh_connection import CONNECTIONS, GRACE_S, SshAddress, SshConnection
from rackgate.nouns.measurement import Reason

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
    """Runner of one node over SSH. `destination` is as for `ssh`; `config` replaces the user's file.

    All runners of a process to one node share one connection, which ends when the last is closed.
    """

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
        self._sudo = sudo
        self._address = SshAddress(
            destination=destination, config=config, connect_timeout_s=connect_timeout_s
        )
        self._connection: SshConnection | None = None
        self._lock = threading.Lock()

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Run it there, with `sudo -n` if it is refused and that is allowed."""

        def remote(argv: Sequence[str]) -> Ran:
            return self._script(shlex.join(argv), deadline_s, argv[0], command.silence_s)

        return with_root(remote, command, sudo=self._sudo, is_root=False)

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Read all files in one command; those that may not be read say so.

        A node that does not answer gives its reason under every pattern.
        """
        return read_files(
            patterns, lambda script: self._script(f"sh -c {shlex.quote(script)}", deadline_s, "sh")
        )

    def close(self) -> None:
        """Hold the shared connection no longer."""
        with self._lock:
            held, self._connection = self._connection, None
        if held is not None:
            CONNECTIONS.give_back(self._address)

    def _script(self, script: str, deadline_s: float, what: str, silence_s: float | None = None) -> Ran:
        limited = f'PATH="$PATH:{SBIN}" exec timeout -k 1 {math.ceil(deadline_s)} {script}'
        remote = f"exec sh -c {shlex.quote(limited)}"  # whatever the login shell is
        with self._lock:
            connection = self._connection = self._connection or CONNECTIONS.take(self._address)
        with connection.session(deadline_s + GRACE_S) as (argv, problem):
            ran = problem or run_process([*argv, remote], deadline_s + GRACE_S, silence_s=silence_s)
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
