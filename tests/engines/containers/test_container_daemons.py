"""Whom a container's start depends on: a registry with a login, a daemon behind ssh or TLS."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from started_container import KEY, environment_of, failure

from rackgate.engines.launchers.containers.daemon import NoDaemon, choose_daemon, open_daemon
from rackgate.engines.launchers.containers.launcher import container
from rackgate.engines.launchers.ports import free_port

pytestmark = pytest.mark.docker


@pytest.fixture
def launch(tmp_path, docker_image):
    told = []

    def start(spec):
        return container(spec, run_id="run-4", log_dir=str(tmp_path), on_progress=told.append)

    start.told = told
    return start


@pytest.fixture
def registry(tmp_path, until, docker_image):
    """Start Debian's registry on loopback with a password; return its address and Docker's login folder."""
    (tmp_path / "htpasswd").write_text("rack:$2y$05$qGB2UKZTpM9NPIpc.cVpA.hf.2TPBNd8uFRhyD3BPAZ1/uvBP9iIi\n")
    port = free_port()
    (tmp_path / "registry.yml").write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {tmp_path}/data\n"
        f"http:\n  addr: 127.0.0.1:{port}\nauth:\n  htpasswd:\n    realm: r\n    path: {tmp_path}/htpasswd\n"
    )
    with (tmp_path / "registry.log").open("wb") as log:
        running = subprocess.Popen(
            ["docker-registry", "serve", str(tmp_path / "registry.yml")], stdout=log, stderr=log
        )
    try:
        until(lambda: _listens(port) or running.poll() is not None)
        login = tmp_path / "login"
        login.mkdir()
        auth = {"auths": {f"127.0.0.1:{port}": {"auth": "cmFjazpyaWdodA=="}}}  # rack:right
        (login / "config.json").write_text(json.dumps(auth))
        yield f"127.0.0.1:{port}", login
    finally:
        running.kill()
        running.wait()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_an_image_is_pulled_with_dockers_login_and_pinned_by_its_registry_digest(
    registry, launch, container_spec, docker_client, docker_image, monkeypatch
):
    address, login = registry
    name = f"{address}/engine:1"
    monkeypatch.setenv("DOCKER_CONFIG", str(login))
    assert docker_client.images.get(docker_image).tag(name)
    pushed = docker_client.api.push(
        name, stream=True, decode=True, auth_config={"username": "rack", "password": "right"}
    )
    assert not [line for line in pushed if "error" in line]
    docker_client.images.remove(name)
    try:
        with launch(container_spec(image=name, pull="missing")) as engine:
            digest = engine.image_digest
            assert f"pulled {name}" in launch.told
        by_digest = f"{address}/engine@{digest}"
        assert by_digest in docker_client.images.get(name).attrs["RepoDigests"]
        with launch(container_spec(image=by_digest)) as engine:
            assert engine.image_digest == digest
        monkeypatch.setenv("DOCKER_CONFIG", str(login / "none"))
        failed = failure(launch, container_spec(image=name, pull="always"))
        assert f"pulling {name}: " in str(failed)
        assert "docker login" in failed.hint
    finally:
        docker_client.images.remove(name, force=True)


@pytest.fixture
def ssh_daemon(tmp_path, until, docker_image, monkeypatch):
    """Start a real sshd on loopback that lets a key of the test in; return the daemon's address behind it."""
    for name in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(made, check=True, timeout=30)
    port = free_port()
    Path("/run/sshd").mkdir(exist_ok=True)
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nPidFile none\nPermitRootLogin prohibit-password\n"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host *\n IdentityFile {tmp_path}/user\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        " LogLevel ERROR\n"
    )
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin" / "ssh"
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path}/ssh_config "$@"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with (tmp_path / "sshd.log").open("wb") as log:
        running = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", str(tmp_path / "sshd_config")], stdout=log, stderr=log
        )
    try:
        until(lambda: _listens(port) or running.poll() is not None)
        yield f"ssh://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


def test_a_daemon_behind_ssh_starts_and_ends_the_engine(
    ssh_daemon, launch, container_spec, docker_client, monkeypatch
):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    with launch(container_spec(docker_host=ssh_daemon, env_from=["HUB_TOKEN"])) as engine:
        assert engine.url.startswith("http://127.0.0.1:")
        assert environment_of(docker_client, engine)["HUB_TOKEN"] == KEY
    assert docker_client.containers.list(all=True, filters={"label": "rackgate.run_id=run-4"}) == []


@pytest.fixture
def certificates(tmp_path):
    """Make an authority, a server's certificate for 127.0.0.1 and a client's, in Docker's layout."""
    folder = tmp_path / "certificates"
    folder.mkdir()

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder, timeout=60)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req",
        "-x509",
        *new,
        "-keyout",
        "ca-key.pem",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=authority",
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for key, out in (("key.pem", "cert.pem"), ("server-key.pem", "server.pem")):
        openssl("req", *new, "-keyout", key, "-out", "request", "-subj", "/CN=rack")
        signed = (
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca-key.pem",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
        )
        openssl("x509", "-req", "-in", "request", *signed, "-out", out)
    return folder


def test_a_daemon_behind_tls_wants_and_gets_our_certificate(certificates, docker_image, monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests lets them win over Docker's own
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    relay = subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "tls_relay.py"), str(port), str(certificates)]
    )
    try:
        deadline = time.monotonic() + 20
        while not _listens(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        environ = {"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_TLS_VERIFY": "1"}
        client = open_daemon(choose_daemon(environ={**environ, "DOCKER_CERT_PATH": str(certificates)}))
        assert client.ping()
        client.close()
        with pytest.raises(NoDaemon):
            open_daemon(choose_daemon(f"tcp://127.0.0.1:{port}"))
    finally:
        relay.kill()
        relay.wait()


def test_secrets_are_not_sent_to_a_remote_daemon_in_the_clear(launch, container_spec, monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    failed = failure(launch, container_spec(docker_host="tcp://192.0.2.1:2375", env_from=["HUB_TOKEN"]))
    assert "its secrets would travel to tcp://192.0.2.1:2375 in the clear" in str(failed)
