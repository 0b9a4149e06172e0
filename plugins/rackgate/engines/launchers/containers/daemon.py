"""The Docker daemons: which one is meant, how it is reached, and at which address its engines answer."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import docker


_DEFAULT = "unix:///var/run/docker.sock"


class NoDaemon(Exception):
    """No Docker daemon answers; the message says what was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon: `unix://SOCKET` (Docker or Podman), `tcp://HOST:PORT` or `ssh://[USER@]HOST[:PORT]`.

    `tls_folder` holds ca.pem, cert.pem and key.pem; `origin` says who chose this daemon; `through` is the
    socket of this machine that leads to it, if it is not reached directly.
    """

    address: str
    origin: str
    tls_folder: str = ""
    tls_verify: bool = True
    through: str = ""

    @property
    def host(self) -> str:
        """The machine that it runs on: from its address, before any client rewrites it."""
        return urlsplit(self.address).hostname or "localhost"

    @property
    def is_local(self) -> bool:
        """True for a socket of this machine and for a loopback address."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    @property
    def is_private(self) -> bool:
        """True if nobody on the way can read what is sent to it."""
        return self.is_local or self.address.startswith("ssh://") or bool(self.tls_folder)

    @property
    def environment(self) -> dict[str, str]:
        """What the Docker SDK reads to reach it."""
        found = {"DOCKER_HOST": self.through or self.address}
        if self.tls_folder:
            found |= {
                "DOCKER_CERT_PATH": self.tls_folder,
                "DOCKER_TLS_VERIFY": "1" if self.tls_verify else "",
            }
        return found

    @property
    def client_options(self) -> dict[str, Any]:
        """The arguments of `docker.from_env`."""
        return {"environment": self.environment}


def choose_daemon(
    wanted: str | None = None,
    *,
    context: str | None = None,
    tls_folder: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Daemon:
    """Return the daemon meant: the address wanted, a named context, else as the docker command chooses.

    That is `DOCKER_HOST`, `DOCKER_CONTEXT`, the current context of Docker's configuration, the usual
    socket. Raises `NoDaemon` for a context that does not exist.
    """
    if wanted:
        return Daemon(address=wanted, origin="docker_host", tls_folder=tls_folder or "")
    if context:
        return _of_context(context, "docker_context", environ)
    if environ.get("DOCKER_HOST"):
        verify = environ.get("DOCKER_TLS_VERIFY", "") != ""
        folder = environ.get("DOCKER_CERT_PATH", "") or (str(_configuration(environ)) if verify else "")
        return Daemon(
            address=environ["DOCKER_HOST"], origin="DOCKER_HOST", tls_folder=folder, tls_verify=verify
        )
    named = environ.get("DOCKER_CONTEXT") or _current_context(environ)
    if named and named != "default":
        return _of_context(named, f"context {named}", environ)
    return Daemon(address=_DEFAULT, origin="default")


def _configuration(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker")


def _current_context(environ: Mapping[str, str]) -> str:
    try:
        found = json.loads((_configuration(environ) / "config.json").read_text("utf-8"))
        return str(found.get("currentContext", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _of_context(name: str, origin: str, environ: Mapping[str, str]) -> Daemon:
    """Read a context as the docker command stores it: folders are named by the digest of its name."""
    ident = hashlib.sha256(name.encode()).hexdigest()
    contexts = _configuration(environ) / "contexts"
    try:
        found = json.loads((contexts / "meta" / ident / "meta.json").read_text("utf-8"))
        endpoint = found["Endpoints"]["docker"]
        address = str(endpoint["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoDaemon(f"there is no Docker context {name!r} (see `docker context ls`)") from error
    folder = contexts / "tls" / ident / "docker"
    return Daemon(
        address=address,
        origin=origin,
        tls_folder=str(folder) if folder.is_dir() else "",
        tls_verify=not endpoint.get("SkipTLSVerify", False),
    )


def open_daemon(daemon: Daemon, timeout_s: int = 60) -> docker.DockerClient:
    """Return a client of a daemon that is reached directly, to be closed; raises `NoDaemon`."""
    socket = Path(daemon.address.removeprefix("unix://"))
    # Looked at first: a client that cannot connect leaves its socket open.
    if daemon.address.startswith("unix://") and not socket.is_socket():
        raise NoDaemon(f"no Docker daemon answers: there is no socket {socket}")
    import docker

    try:
        return docker.from_env(timeout=timeout_s, **daemon.client_options)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise NoDaemon(
            f"no Docker daemon answers at {daemon.address} ({daemon.origin}): {error}{_help_with(str(error))}"
        ) from error


def _help_with(said: str) -> str:
    """Return what to do about a failure of the client itself, whose words do not tell."""
    bundles = [name for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)]
    if "CERTIFICATE_VERIFY_FAILED" in said and bundles:
        return f"; {bundles[0]} replaces the daemon's own authority: unset it, or add that authority to it"
    return ""


def choose_reaper(client: docker.DockerClient) -> None:
    """Let testcontainers use its reaper only if its image is here: nothing is downloaded at run time."""
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config

    try:
        client.images.get(testcontainers_config.ryuk_image)
    except DockerException:
        testcontainers_config.ryuk_disabled = True


def remove_labelled(client: docker.DockerClient, label: str) -> None:
    """Remove every container, network and volume that has the label, running or not."""
    from docker.errors import APIError

    api = client.api
    for entry in api.containers(all=True, filters={"label": label}):
        with suppress(APIError):  # it is being removed already
            api.remove_container(entry["Id"], force=True, v=True)
    for entry in api.networks(filters={"label": label}):
        with suppress(APIError):
            api.remove_network(entry["Id"])
    for entry in api.volumes(filters={"label": label}).get("Volumes") or ():
        with suppress(APIError):
            api.remove_volume(entry["Name"])
