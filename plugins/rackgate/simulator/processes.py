"""The starter's side of a process of the simulated rack: start it, send its plan, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class RackStartFailed(RuntimeError):
    """A process of the simulated rack did not start; the message holds the end of its log."""


class RackProcess:
    """A child process. It ends with its starter, since it watches its standard input."""

    def __init__(self, module: str, name: str, *, state: int, log_dir: Path | None) -> None:
        self.name = name
        self._log: IO[bytes] = _open_log(name, log_dir)
        roots = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            (sys.executable, "-m", f"rackgate.simulator.{module}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=(state,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots))},
            process_group=0,  # the starter handles an interrupt at the terminal
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send_plan(self, plan: Mapping[str, Any]) -> None:
        """Send the plan of the process."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(json.dumps(plan).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._failed("ended before it was told its plan") from None

    def read_ports(self, deadline_s: float) -> dict[str, Any]:
        """Return the ports of the ready process; raises RackStartFailed at the monotonic deadline."""
        output = self._process.stdout
        line = b""
        while output is not None and not line.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise self._failed("is not ready in time")
            piece = os.read(output.fileno(), 1 << 16)
            if not piece:
                raise self._failed("ended before it was ready")
            line += piece
        ports: dict[str, Any] = json.loads(line)
        return ports

    def ask_to_end(self) -> None:
        """Close the standard input of the process, which makes it end."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                return

    def ensure_ended(self, timeout_s: float) -> None:
        """Wait for the end of the process, and kill it after the timeout."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _failed(self, what: str) -> RackStartFailed:
        self._log.seek(0)
        tail = self._log.read()[-2000:].decode("utf-8", "replace").strip()
        return RackStartFailed(f"the simulated {self.name} {what}" + (f":\n{tail}" if tail else ""))


def _open_log(name: str, log_dir: Path | None) -> IO[bytes]:
    if log_dir is None:
        return tempfile.TemporaryFile()
    return (log_dir / f"simulated-{name}.log").open("w+b")
