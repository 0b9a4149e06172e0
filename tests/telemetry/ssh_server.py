"""Real SSH servers on loopback, with keys of their own and a configuration that knows them."""

import getpass
import os
import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from waiting import until

SERVER = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def key(path):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path],
        check=True,
        timeout=60,
        capture_output=True,
    )
    return path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def settled(process, port):
    return process.poll() is not None or listens(port)


class Servers:
    """Two servers: `jump`, and `node`, which is reached through it under the name `behind`."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = {}
        self.ports = {}
        self.config = folder / "config"
        self.known_hosts = folder / "known_hosts"
        self._mute = socket.socket()  # bound, so that nobody else listens there, and never listening
        self._mute.bind(("127.0.0.1", 0))
        user_key = key(folder / "user_key")
        shutil.copy(f"{user_key}.pub", folder / "authorized_keys")
        for name in ("jump", "node"):
            self._start(name)
        self.known_hosts.write_text("".join(self.host_line(name) for name in self.ports))
        self.write_config()

    def host_line(self, name):
        public = (self.folder / f"{name}_key.pub").read_text()
        return f"[127.0.0.1]:{self.ports[name]} {public}"

    def write_config(self, extra=""):
        lines = [
            *(f"Host {name}\n  HostName 127.0.0.1\n  Port {port}" for name, port in self.ports.items()),
            f"Host behind\n  HostName 127.0.0.1\n  Port {self.ports['node']}\n  ProxyJump jump",
            f"Host nowhere\n  HostName 127.0.0.1\n  Port {self._mute.getsockname()[1]}",
            "Host *",
            f"  User {getpass.getuser()}",
            f"  IdentityFile {self.folder}/user_key",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.known_hosts}",
            "  GlobalKnownHostsFile none",
            extra,
        ]
        self.config.write_text("\n".join(lines) + "\n")

    def stop(self, name):
        """Freeze a server and every session of it: the node that stops answering."""
        for pid in self._tree(self.processes[name].pid):
            os.kill(pid, 19)

    def resume(self, name):
        for pid in self._tree(self.processes[name].pid):
            os.kill(pid, 18)

    def close(self):
        self._mute.close()
        for process in self.processes.values():
            for pid in self._tree(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait(20)

    def _tree(self, pid):
        found = [pid]
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in task.read_text().split():
                found += self._tree(int(child))
        return found

    def _start(self, name):
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        host_key = key(self.folder / f"{name}_key")
        for _ in range(5):
            port = free_port()
            config = self.folder / f"{name}_config"
            config.write_text(
                f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
                f"AuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\n"
                "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxSessions 64\n"
            )
            with (self.folder / f"{name}.log").open("w") as log:
                process = subprocess.Popen([SERVER, "-D", "-e", "-f", config], stderr=log, stdout=log)
            if until(partial(settled, process, port)) and process.poll() is None:
                self.processes[name], self.ports[name] = process, port
                return
        raise AssertionError((self.folder / f"{name}.log").read_text())


@contextmanager
def ssh_servers(folder):
    servers = Servers(folder)
    try:
        yield servers
    finally:
        servers.close()
