"""A running engine process and the keeper that sees to its end."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rackgate.engines import launch_records
from rackgate.engines.launchers.members import without_cards
from rackgate.engines.launchers.outcome import start_refused, tail_of_file
from rackgate.engines.launchers.processes import keeper
from rackgate.engines.launchers.settings import text, whole_table
from rackgate.nouns.target import EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """How the process is started, the first time and again."""

    spec: EngineSpec
    run_id: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    stop_timeout_s: float
    token: str


class EngineProcess:
    """A running engine process and its keeper: it can be killed, restarted and stopped."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._plan = self._whole = plan
        self._status = b""
        self._journal: Path | None = None
        self._start()

    @property
    def pid(self) -> int:
        """The main process's id, which is its group's too."""
        return self._pid

    @property
    def keeper_pid(self) -> int:
        """The id of the process that ends the group when we are gone."""
        return self._keeper.pid

    @property
    def exit_status(self) -> int | None:
        """What the main process ended with, negative for a signal; None while it runs."""
        self._read_status(0)
        for line in self._status.decode().splitlines():
            if line.startswith("exit "):
                return int(line.removeprefix("exit "))
        return None if self._keeper.poll() is None else -signal.SIGKILL

    def alive(self) -> bool:
        """Return whether the main process exists."""
        return self.exit_status is None

    def ended(self) -> str:
        """Return how the main process ended; empty while it runs."""
        status = self.exit_status
        if status is None:
            return ""
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"

    def tail(self) -> bytes:
        """Return the last 64 KiB of the log."""
        return tail_of_file(self._plan.log_path)

    def kill(self) -> None:
        """Send SIGKILL to the whole group and return at once."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the whole group where it stands: ports stay open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the whole group go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def restart(self) -> None:
        """Start the same command on the same port again; return when the process exists."""
        self.stop()
        self._start()

    def restart_without(self, *cards: str) -> None:
        """Start again on the same port, blind to these cards of the engine; none gives all back."""
        plan = self._whole
        left = without_cards(plan.spec, cards).cards
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(card.rpartition("gpu")[2] for card in left)}
        self._plan = replace(plan, environment={**plan.environment, **visible}) if cards else plan
        self.restart()

    def stop(self) -> None:
        """SIGTERM to the group, SIGKILL when `stop_timeout_s` is over; return when all of it is gone."""
        self.resume()
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()
        try:
            self._keeper.wait(self._plan.stop_timeout_s + keeper.LINGER_S + 10.0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            self._keeper.kill()
        self._release()
        if self._journal is not None:
            launch_records.forget(self._journal)
            self._journal = None

    def _release(self) -> None:
        """Take what the ended keeper still says and close its pipes."""
        self._keeper.wait()
        self._read_status(0)
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> None:
        plan = self._plan
        self._status = b""
        limits = ",".join(
            f"{name}={value}" for name, value in whole_table(plan.spec.settings, "limits").items()
        )
        with plan.log_path.open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", keeper.__file__, str(plan.stop_timeout_s), limits),
                    *plan.command,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=text(plan.spec.settings, "cwd"),
                env=dict(plan.environment),
                start_new_session=True,
            )
        self._pid = self._started_pid()
        self._journal = launch_records.remember(self._launch())

    def _started_pid(self) -> int:
        """Wait until the keeper says that the process exists."""
        deadline = time.monotonic() + 30.0
        while b"\n" not in self._status and time.monotonic() < deadline and self._read_status(0.1):
            pass
        for line in self._status.decode("utf-8", "replace").splitlines():
            if line.startswith("started "):
                return int(line.removeprefix("started "))
        self._keeper.kill()
        self._release()
        raise start_refused(
            self._plan.spec,
            "process",
            self._status.decode("utf-8", "replace").removeprefix("failed ").strip()
            or "its keeper did not start",
            "check the command and the working directory",
        )

    def _read_status(self, wait_s: float) -> bool:
        """Take what the keeper wrote; return False when nothing more will come."""
        stream = self._keeper.stdout
        if stream is None or stream.closed:
            return False
        while select.select([stream], [], [], wait_s)[0]:
            data = os.read(stream.fileno(), 4096)
            if not data:
                return False
            self._status += data
            wait_s = 0.0
        return True

    def _launch(self) -> launch_records.Launch:
        plan = self._plan
        return launch_records.Launch(
            token=plan.token,
            engine=plan.spec.name,
            run_id=plan.run_id,
            pid=self._pid,
            pid_start=launch_records.process_start(self._pid),
            keeper=self._keeper.pid,
            keeper_start=launch_records.process_start(self._keeper.pid),
            owner=os.getpid(),
            owner_start=launch_records.process_start(os.getpid()),
            boot=launch_records.boot_id(),
            command=shlex.join(plan.command)[:200],
        )
