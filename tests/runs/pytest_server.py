"""Runs pytest in forks of a process that has imported pytest and rackgate already.

Imports are most of what a short run costs: over a second of CPU. A fork has them. It is a process of its own
in all else: its folder, environment, output, signals and exit status.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress

import pytest

_REQUEST_BYTES = 1 << 17
_PACKAGES = ("rackgate", "rackgate_fixtures", "rackgate_reports")
_LIBRARIES = ("httpx", "numpy", "prometheus_client.parser", "pyarrow.parquet", "pydantic", "rich.console")


class PytestServer:
    """The client's side: starts the process that forks, and asks it for runs, from any thread."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def run(self, arguments, *, folder, environment, timeout_s):
        """Run `python -m pytest ARGUMENTS` in the folder; raises TimeoutExpired, the run is killed then."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            request = json.dumps([[str(one) for one in arguments], str(folder), dict(environment)]).encode()
            connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with connection:
                with theirs:
                    sent = array.array("i", [theirs.fileno(), output.fileno(), errors.fileno()])
                    self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
                connection.settimeout(timeout_s)
                try:
                    status = connection.recv(16)
                except TimeoutError:
                    raise subprocess.TimeoutExpired(arguments, timeout_s) from None
            return subprocess.CompletedProcess(arguments, int(status), _text(output), _text(errors))

    def close(self):
        """End the process that forks."""
        self._socket.close()
        self._process.wait(timeout=10)


def _text(file):
    file.seek(0)
    return file.read().decode(errors="replace")


class _Imports:
    """Imports everything while pytest runs, as a run does: its import hook rewrites `assert` in plugins."""

    def pytest_configure(self):
        for package in _PACKAGES:
            for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)
        for library in _LIBRARIES:
            importlib.import_module(library)


def _serve(requests):
    """Fork for each request until the client is gone; returns only in a fork that is to run pytest."""
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not request:
            raise SystemExit
        if os.fork() == 0:
            requests.close()
            connection, *outputs = descriptors
            run = os.fork()
            if run == 0:
                os.close(connection)
                return _enter(*json.loads(request), outputs)
            _watch(run, socket.socket(fileno=connection))
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _watch(run, client):
    """Tell the client the exit status of the run, which is killed if the client goes away before."""
    ended = os.pidfd_open(run)
    if ended not in select.select([ended, client], [], [])[0]:
        os.kill(run, signal.SIGKILL)
    _, status = os.waitpid(run, 0)
    with suppress(OSError):
        client.send(str(os.waitstatus_to_exitcode(status)).encode())


def _enter(arguments, folder, environment, outputs):
    """Make this process one that was started as `python -m pytest ARGUMENTS` in the folder."""
    for descriptor, number in zip(outputs, (1, 2), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = dict.fromkeys([folder, *given, *sys.path])
    sys.argv[1:] = arguments


if __name__ == "__main__":
    requests = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]
    with tempfile.TemporaryDirectory() as nothing:
        pytest.main(["-q", "-c", os.devnull, f"--rootdir={nothing}", nothing], plugins=[_Imports()])
    gc.freeze()
    _serve(requests)
    sys.exit(pytest.main())
