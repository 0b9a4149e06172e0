"""Runners: read files and run commands of a node, locally or below a stand-in root."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rackgate.hosts.child_process import kill_group
from rackgate.nouns.measurement import Reason

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where many tools of a host are (`modinfo`, `dkms`), and what a plain user's PATH may lack."""

_LIMIT_BYTES = 1 << 20
_NAME_LENGTH = 120
_DENIED = re.compile(
    r"permission denied|operation not permitted|must be root|are you root|insufficient permissions"
    r"|not permitted|interactive authentication required",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, whether it needs root, and the smallest grant that lets it run without.

    It is given up when it prints nothing for `silence_s`. `known_as` is the name under which a folder that
    stands in for a machine has it, where the command line is no good name; `cards` is how many the machine
    has.
    """

    argv: tuple[str, ...]
    root: bool = False
    grant: str = ""
    silence_s: float | None = None
    known_as: str = ""
    cards: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a command: text, or the reason why there is none. `status` is its exit status."""

    text: str = ""
    error: str = ""
    status: int | None = None
    reason: Reason | None = None
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran and ended well."""
        return self.reason is None and self.status == 0


class Runner(Protocol):
    """A node that can be asked. Nothing is raised for what the node does."""

    name: str

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Return the result of a command within the deadline."""

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Return the files that match shell patterns, by path; a path without a file has no entry."""

    def close(self) -> None:
        """Release the node; safe to call twice."""


def run_process(
    argv: Sequence[str],
    deadline_s: float,
    text: str | None = None,
    silence_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a local process; at the deadline its whole group is killed and not waited for.

    The same happens after `silence_s` without output; earlier output is kept. `environment` is its whole
    environment, None for ours.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )
    except FileNotFoundError:
        return Ran(reason=Reason.TOOL_MISSING, detail=f"{argv[0]} is not installed")
    except OSError as error:
        return Ran(reason=Reason.NO_PERMISSION, detail=f"{argv[0]}: {error.strerror}")
    try:
        if silence_s is None:
            out, err = process.communicate(None if text is None else text.encode(), timeout=deadline_s)
        else:
            out, err = _listen(process, deadline_s, silence_s)
    except subprocess.TimeoutExpired as late:
        kill_group(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        _reap(process)
        said = (late.output or b"").decode("utf-8", "replace")
        why = f"did not end within {deadline_s:g} s"
        if late.timeout != deadline_s:
            why = f"printed nothing for {late.timeout:g} s"
        return Ran(text=said, reason=Reason.TIMEOUT, detail=f"{argv[0]} {why}")
    return judged(argv[0], process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _listen(process: subprocess.Popen[bytes], deadline_s: float, silence_s: float) -> tuple[bytes, bytes]:
    """Return both outputs of a process; raises `TimeoutExpired` with the broken limit."""
    heard = {process.stdout: bytearray(), process.stderr: bytearray()}
    ends = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        for pipe in heard:
            selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type] # both are pipes
        while selector.get_map():
            left = ends - time.monotonic()
            ready = selector.select(max(0.0, min(left, silence_s)))
            if not ready:
                limit = deadline_s if left <= silence_s else silence_s
                raise subprocess.TimeoutExpired(process.args, limit, bytes(heard[process.stdout]))
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                heard[key.fileobj] += piece  # type: ignore[index] # as registered
                if not piece:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr] # as registered
    process.wait(max(0.1, ends - time.monotonic()))
    return bytes(heard[process.stdout]), bytes(heard[process.stderr])


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.returncode = -9  # stuck in the kernel: nobody waits for it any more


def judged(what: str, status: int, out: str, error: str) -> Ran:
    """Return the meaning of an ended command by its status and output."""
    first = error.strip().splitlines()[:1] or out.strip().splitlines()[:1]
    said = f"{what}: {first[0][:200]}" if first else f"{what} ended with {status}"
    reason = None
    if status == 127 or (status and "command not found" in error):
        reason, said = Reason.TOOL_MISSING, f"{what} is not installed"
    elif status in (124, 137):
        reason = Reason.TIMEOUT
    elif status and _DENIED.search(error + out):
        reason = Reason.NO_PERMISSION
    return Ran(text=out, error=error, status=status, reason=reason, detail=said if status else "")


class LocalRunner:
    """This machine. `sudo` says whether `sudo -n` may be tried where root is missing."""

    def __init__(self, name: str = "localhost", *, sudo: bool = False) -> None:
        self.name = name
        self._sudo = sudo

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Run it, with `sudo -n` if it is refused and that is allowed."""
        there = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}"}
        return with_root(
            lambda argv: run_process(argv, deadline_s, silence_s=command.silence_s, environment=there),
            command,
            sudo=self._sudo,
            is_root=os.geteuid() == 0,
        )

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Read files of this machine."""
        del deadline_s  # /proc and /sys answer at once
        return _files_below(Path("/"), patterns)

    def close(self) -> None:
        """Nothing is held."""


class RootRunner:
    """A folder that stands in for a machine: its files, and `commands/NAME.txt` for outputs of commands.

    NAME is the command line with every run of other characters than letters, digits, dot, dash and
    underscore as one underscore, 120 characters at most. A file that begins with `exit N` gives that
    status. A piece between `«` and `»` stands once for each card, `@` being its number, commas between;
    `@@` is how many cards there are. A file `grow N` reads as a number that begins at 0 and grows by N each
    second; a command's `now N` is the present moment, N seconds later, as `date +%s.%N` prints it.
    `base.txt` names a folder beside this one, whose files count where this one has none.
    """

    def __init__(self, root: Path, name: str = "localhost") -> None:
        self.name = name
        base = root / "base.txt"
        below = [root.parent / base.read_text("utf-8").strip()] if base.is_file() else []
        self._roots = (root, *below)
        self._began = time.monotonic()

    def run(self, command: Command, deadline_s: float) -> Ran:
        """Return what the folder says that the command says."""
        del deadline_s
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", command.known_as or " ".join(command.argv))[:_NAME_LENGTH]
        paths = [root / "commands" / f"{name}.txt" for root in self._roots]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return Ran(reason=Reason.TOOL_MISSING, detail=f"{command.argv[0]} is not installed")
        text = path.read_text("utf-8", "replace")
        found = re.match(r"exit (\d+)\n", text)
        body = _for_each_card(text[found.end() :] if found else text, command.cards)
        status = int(found[1]) if found else 0
        moment = re.fullmatch(r"now (-?[\d.]+)\n?", body)
        body = f"{time.time() + float(moment[1]):.9f}\n" if moment else body
        return judged(command.argv[0], status, body, body if status else "")

    def read(self, patterns: Sequence[str], deadline_s: float) -> Mapping[str, Ran]:
        """Read files below the folder."""
        del deadline_s
        found: dict[str, Ran] = {}
        for root in reversed(self._roots):
            found |= _files_below(root, patterns)
        return {path: self._grown(ran) for path, ran in found.items()}

    def _grown(self, ran: Ran) -> Ran:
        rate = re.fullmatch(r"grow (\d+)\n?", ran.text)
        if rate is None:
            return ran
        return Ran(text=f"{int(int(rate[1]) * (time.monotonic() - self._began))}\n", status=0)

    def close(self) -> None:
        """Nothing is held."""


def _for_each_card(text: str, cards: int) -> str:
    def repeated(found: re.Match[str]) -> str:
        return ", ".join(found[1].replace("@", str(card)) for card in range(cards))

    inner = re.sub(r"«([^«»]*)»", repeated, text.replace("@@", str(cards)))
    return inner if inner == text else _for_each_card(inner, cards)


def with_root(run: Callable[[Sequence[str]], Ran], command: Command, *, sudo: bool, is_root: bool) -> Ran:
    """Run a command; if it is refused, with `sudo -n` if allowed, or return the smallest cure."""
    first = run(command.argv)
    if first.reason is not Reason.NO_PERMISSION or is_root:
        return first
    if sudo:
        second = run(("sudo", "-n", *command.argv))
        if second.ok or second.reason is not Reason.TOOL_MISSING:
            asks = "password is required" in second.error or "a terminal is required" in second.error
            if not asks and second.reason is not Reason.NO_PERMISSION:
                return second
    cure = command.grant or f"a sudoers rule for `{' '.join(command.argv)}`"
    return Ran(status=first.status, reason=Reason.NO_PERMISSION, detail=f"{first.detail}; it needs {cure}")


def _files_below(root: Path, patterns: Iterable[str]) -> dict[str, Ran]:
    found: dict[str, Ran] = {}
    for pattern in patterns:
        for path in sorted(root.glob(pattern.lstrip("/"))):
            if path.is_dir():
                continue
            name = "/" + str(path.relative_to(root))
            try:
                with path.open("rb") as file:
                    text = file.read(_LIMIT_BYTES).decode("utf-8", "replace")
                found[name] = Ran(text=text, status=0)
            except PermissionError:
                found[name] = Ran(reason=Reason.NO_PERMISSION, detail=f"{name} may not be read")
            except OSError as error:
                found[name] = Ran(reason=Reason.UNSUPPORTED, detail=f"{name}: {error.strerror}")
    return found
