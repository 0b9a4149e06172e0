"""A node through its Docker daemon: one container that sees the host's files and changes none of them.

It runs an image that is there already, with no capability but `chroot`, no privileges to gain, a root file
system that cannot be written and the host's mounted read-only; it ends, and is removed, with this process.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackgate.hosts.child_process import kill_group
from rackgate.hosts.runner import SBIN, Command, Ran, run_process, with_root
from rackgate.hosts.shared_resources import Leases
from rackgate.hosts.shell_files import read_files
from rackgate.nouns.measurement import Reason

_GRACE_S = 2.0
_START_S = 20.0
_STEP_S = 0.05
_CAUSES = (
    ("permission denied", Reason.NO_PERMISSION, "membership of the group docker, or a rootless daemon"),
    ("No such image", Reason.ABSENT, "`docker pull` the image on the node"),
    ("Unable to find image", Reason.ABSENT, "`docker pull` the image on the node"),
    ("Cannot connect to the Docker daemon", Reason.UNREACHABLE, "no daemon answers at that address"),
    ("failed to connect", Reason.UNREACHABLE, "no daemon answers at that address"),
    ('context "', Reason.NOT_CONFIGURED, "see `docker context ls`"),
)
_NO_CARDS = "could not select device driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """A daemon (a context's name, or `unix://`, `tcp://`, `ssh://`) and an image there.

    `cards` says that the node should have some.
    """

    daemon: str
    image: str
    cards: bool = False

    @property
    def client(self) -> tuple[str, ...]:
        """Return the command line of `docker` up to its command."""
        return ("docker", "--host" if "://" in self.daemon else "--context", self.daemon)


class ToolContainer:
    """The container, started by its first user; its life hangs on a pipe of this process."""

    def __init__(self, host: DockerHost) -> None:
        self._host = host
        self._name = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def inside(self, script: str, deadline_s: float, silence_s: float | None = None) -> Ran:
        """Run a command line with the host's root as its own."""
        ends = time.monotonic() + deadline_s
        if not self._starting.acquire(timeout=deadline_s):
            return Ran(reason=Reason.TIMEOUT, detail=f"no container within {deadline_s:g} s")
        try:
            problem = self._start()
        finally:
            self._starting.release()
        if problem is not None:
            return problem
        left_s = max(0.1, ends - time.monotonic())
        limited = f"PATH=/usr/local/bin:/usr/bin:/bin:{SBIN} exec timeout -k 1 {math.ceil(left_s)} {script}"
        settings = ("--env", "SYSTEMD_IGNORE_CHROOT=1")
        argv = ("exec", *settings, self._name, "chroot", "/host", "/bin/sh", "-c", limited)
        return run_process([*self._host.client, *argv], left_s + _GRACE_S, silence_s=silence_s)

    def close(self) -> None:
        """End and remove the container."""
        process, self._process = self._process, None
        if process is None:
            return
        run_process([*self._host.client, "rm", "--force", self._name], _START_S)
        _end(process)

    def _start(self) -> Ran | None:
        """Start it if it does not run; return what came of that if it failed."""
        if self._process is not None:
            if self._process.poll() is None:
                return None
            _end(self._process)
            self._process = None
        problem = self._begin(("--gpus", "all")) if self._host.cards else self._begin(())
        if problem is not None and _NO_CARDS in problem.error:
            problem = self._begin(())  # the host can be read all the same; its cards cannot
        return problem

    def _begin(self, cards: tuple[str, ...]) -> Ran | None:
        self._name = f"rackgate-look-{os.getpid()}-{secrets.token_hex(4)}"
        limits = ("--cap-drop", "ALL", "--cap-add", "SYS_CHROOT", "--security-opt", "no-new-privileges")
        host = ("--read-only", "--network", "host", "--ipc", "host", "--volume", "/:/host:ro")
        life = ("--interactive", "--rm", "--pull", "never", "--name", self._name, "--entrypoint", "cat")
        argv = [*self._host.client, "run", *life, *limits, *host, *cards, self._host.image]
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            return Ran(reason=Reason.TOOL_MISSING, detail="the docker client is not installed here")
        until = time.monotonic() + _START_S
        while time.monotonic() < until and process.poll() is None:
            state = (*self._host.client, "inspect", "--format", "{{.State.Running}}", self._name)
            if run_process(state, _START_S).text.strip() == "true":
                self._process = process
                return None
            time.sleep(_STEP_S)
        return self._failed(process)

    def _failed(self, process: subprocess.Popen[bytes]) -> Ran:
        if process.poll() is None:
            _end(process)
            return Ran(reason=Reason.TIMEOUT, detail=f"{self._host.daemon}: no container in {_START_S:g} s")
        said = process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
        _end(process)
        lines = [line for line in said.splitlines() if line.strip() and "--help" not in line]
        first = lines[0].strip() if lines else f"docker ended with {process.returncode}"
        for words, reason, cure in _CAUSES:
            if words in said:
                return Ran(reason=reason, detail=f"{self._host.daemon}: {first} ({cure})", error=said)
        return Ran(reason=Reason.UNREACHABLE, detail=f"{self._host.daemon}: {first}", error=said)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        kill_group(process)
        process.wait()


CONTAINERS: Leases[DockerHost, ToolContainer] = Leases(ToolContainer)
"""The containers of this process, one to each daemon and image."""


class DockerRunner:
    """One node. All runners of a process to one daemon share one container."""

    def __init__(self, host: DockerHost, *, name: str) -> None:
        self.name = name
        self._host = host
        self._container: ToolContainer | None = None
        self._lock = threading.Lock()

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Run the host's own program, as root without its capabilities."""

        def there(argv: Sequence[str]) -> Ran:
            return self._inside(shlex.join(argv), deadline_s, argv[0], command.silence_s)

        return with_root(there, command, sudo=False, is_root=False)

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Read all files in one command; those that may not be read say so."""
        return read_files(
            patterns, lambda script: self._inside(f"sh -c {shlex.quote(script)}", deadline_s, "sh")
        )

    def close(self) -> None:
        """Hold the shared container no longer."""
        with self._lock:
            held, self._container = self._container, None
        if held is not None:
            CONTAINERS.give_back(self._host)

    def _inside(self, script: str, deadline_s: float, what: str, silence_s: float | None = None) -> Ran:
        with self._lock:
            container = self._container = self._container or CONTAINERS.take(self._host)
        ran = container.inside(script, deadline_s + _GRACE_S, silence_s)
        if ran.reason is Reason.TIMEOUT and ran.status is not None:
            text = f"{self.name}: {what} did not end within {deadline_s:g} s"
            return Ran(text=ran.text, reason=Reason.TIMEOUT, detail=text, status=ran.status)
        if ran.status == 127:
            text = f"{what} is not installed on {self.name}"
            return Ran(reason=Reason.TOOL_MISSING, detail=text, status=127)
        return ran
