"""Run a real control plane on loopback and record its answers to the launcher's own calls.

usage: record.py FOLDER_OF_PROGRAMS OUTPUT

There is no kubelet: the script says in its place, through the API, what a kubelet says of a pod that runs
and of one that was told to end.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from rackgate.engines.launchers.pods.cluster import ClusterRefused, open_cluster
from rackgate.engines.launchers.pods.engine import EnginePod
from rackgate.engines.launchers.pods.manifests import LAUNCH_LABEL, PodPlan, deployment_of
from rackgate.engines.launchers.ports import free_port

LIMIT_S = 90.0
PLAN = PodPlan(
    name="rackgate-e-1",
    namespace="default",
    labels={"app.kubernetes.io/managed-by": "rackgate", LAUNCH_LABEL: "1", "rackgate.io/run": "r1"},
    annotations={"rackgate.io/engine": "e"},
    image="registry.example/vllm:1",
    pull="missing",
    port=8000,
    health_path="/health",
    arguments=("--model", "/models/m"),
    environment={"A": "1"},
    secrets={"HF_TOKEN": "recorded-secret"},
    gpus=2,
    node_name="node-a",
    tolerations=({"key": "under-test", "operator": "Exists", "effect": "NoSchedule"},),
    memory="1Gi",
    cpu="1",
)
GREEDY = replace(PLAN, gpus=4, secrets={})
REFUSED = (
    ("a user without rights", "guest", PLAN),
    ("a token that nobody has", "nobody", PLAN),
    ("a quantity that is none", "admin", replace(PLAN, memory="lots")),
    ("a namespace that is not there", "admin", replace(PLAN, namespace="nowhere")),
)


class Recorder:
    """Passes requests on to the server with the caller's token, and keeps what was said."""

    def __init__(self, server: str) -> None:
        self.server, self.exchanges, self.scene = server, [], ""
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self):
                recorder.pass_on(self)

            do_GET = do_POST = do_DELETE = do_PATCH = pass_on  # noqa: N815

        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        sent = handler.rfile.read(size) if size else None
        status, kind, data = ask(
            self.server + handler.path,
            handler.command,
            sent,
            {
                name: handler.headers[name]
                for name in ("authorization", "content-type")
                if handler.headers[name]
            },
        )
        self.exchanges.append(
            {
                "scene": self.scene,
                "method": handler.command,
                "path": handler.path,
                "sent": json.loads(sent) if sent else None,
                "status": status,
                "content_type": kind,
                "answer": json.loads(data) if "json" in kind else data.decode("utf-8", "replace"),
            }
        )
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def ask(url, method="GET", body=None, headers=None):
    """Return (status, content type, body) with no header but those given, as a type that is not sent matters.

    The server's certificate is one of a minute ago.
    """
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with closing(HTTPSConnection(parts.netloc, context=context, timeout=30)) as connection:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers.get("content-type", ""), response.read()


def until(condition, what):
    """Return what the condition returns as soon as it is true."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"not within {LIMIT_S:g} s: {what}")


def started(stack, folder, *command):
    """Start a program that ends with us; its log is beside the others."""
    log = (folder / f"{Path(command[0]).name}.log").open("wb")
    process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
    stack.callback(process.kill)


def kubeconfig(path, server, token):
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return str(path)


def control_plane(stack, programs, folder):
    """Start etcd, API server, controllers and scheduler; return the server's address."""
    data, peers, port = free_port(), free_port(), free_port()
    server = f"https://127.0.0.1:{port}"
    started(
        stack, folder, str(programs / "etcd"), "--data-dir", str(folder / "etcd"),
        "--listen-client-urls", f"http://127.0.0.1:{data}", "--advertise-client-urls", f"http://127.0.0.1:{data}",
        "--listen-peer-urls", f"http://127.0.0.1:{peers}",
    )  # fmt: skip
    subprocess.run(
        ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True
    )
    (folder / "tokens.csv").write_text("admin,admin,1,system:masters\nguest,guest,2\n")
    started(
        stack, folder, str(programs / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{data}",
        f"--secure-port={port}", "--insecure-port=0", "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
        f"--service-account-key-file={folder / 'sa.key'}", "--service-account-issuer=https://rackgate.example",
        f"--service-account-signing-key-file={folder / 'sa.key'}", "--service-cluster-ip-range=10.96.0.0/16",
        "--disable-admission-plugins=ServiceAccount",
    )  # fmt: skip
    admin = {"authorization": "Bearer admin"}

    def ready():
        try:
            return ask(f"{server}/readyz", headers=admin)[0] == 200
        except OSError:
            return False

    until(ready, "the API server is ready")
    config = kubeconfig(folder / "admin.kubeconfig", server, "admin")
    # Without the node controllers, which would find that no kubelet speaks for the node.
    started(
        stack, folder, str(programs / "kube-controller-manager"), f"--kubeconfig={config}",
        "--leader-elect=false",
        "--controllers=deployment,replicaset,garbagecollector,resourcequota,namespace",
    )  # fmt: skip
    started(stack, folder, str(programs / "kube-scheduler"), f"--kubeconfig={config}", "--leader-elect=false")
    return server


def main():
    programs, output = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = control_plane(stack, programs, folder)
        recorder = Recorder(server)
        address = "http://{}:{}".format(*recorder.proxy.server_address)
        admin = Admin(server)
        admin.add_node()

        def open_as(token):
            return open_cluster(kubeconfig(folder / f"{token}.recorded", address, token), None)

        play(recorder, admin, open_as)
        source = [path.stem for path in programs.parent.glob("*.dsc")]
        said = recorder.exchanges
        kept = said[:1] + [one for before, one in pairwise(said) if one != before]
        recorded = {"built_from_debian_source": source, "exchanges": [slim(one) for one in kept]}
        output.write_text(json.dumps(recorded, indent=1) + "\n")
        print(f"{len(recorder.exchanges)} exchanges in {output}")


def slim(value):
    """Leave out the bookkeeping of field owners, which nobody reads and which is half of every object."""
    if isinstance(value, dict):
        return {key: slim(item) for key, item in value.items() if key != "managedFields"}
    return [slim(item) for item in value] if isinstance(value, list) else value


class Admin:
    """The cluster's owner, whose calls are not recorded, and the kubelet that is not there."""

    pods = f"/api/v1/namespaces/default/pods?labelSelector={LAUNCH_LABEL}%3D1"

    def __init__(self, server: str) -> None:
        self.server = server
        threading.Thread(target=self.end_pods, daemon=True).start()

    def __call__(self, method, path, body=None):
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"authorization": "Bearer admin", "content-type": kind}
        data = json.dumps(body).encode() if body else None
        status, _, answer = ask(self.server + path, method, data, headers)
        if status >= 300 and status != 404:
            raise SystemExit(f"{method} {path}: {status} {answer[:400]!r}")
        return json.loads(answer)

    def pods_that(self, have):
        """Return the engine's pods of which that is true."""
        return [pod for pod in self("GET", self.pods)["items"] if have(pod)]

    def end_pods(self):
        """Confirm the end of every pod that is told to end."""
        grace = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
        with suppress(OSError):  # until the server has ended
            while True:
                time.sleep(0.2)
                for pod in self.pods_that(lambda pod: pod["metadata"].get("deletionTimestamp")):
                    self("DELETE", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", grace)

    def add_node(self):
        """Make a node with two cards, as its kubelet and device plugin describe it."""
        self("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        resources = {"cpu": "8", "memory": "64Gi", "pods": "10", "nvidia.com/gpu": "2"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        self("PATCH", "/api/v1/nodes/node-a/status", {"status": status})
        self("PATCH", "/api/v1/nodes/node-a", {"spec": {"taints": None}})

    def run_pod(self):
        """Say of the one pod that its container runs."""
        (pod,) = self.pods_that(lambda pod: pod["spec"].get("nodeName"))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        container = {
            "name": "engine",
            "image": PLAN.image,
            "imageID": "registry.example/vllm@sha256:" + "a" * 64,
            "containerID": "containerd://" + "b" * 64,
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "lastState": {},
        }
        kinds = ("Initialized", "Ready", "ContainersReady")
        status = {
            "phase": "Running",
            "hostIP": "10.0.0.11",
            "podIP": "10.244.0.5",
            "podIPs": [{"ip": "10.244.0.5"}],
            "startTime": now,
            "containerStatuses": [container],
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        }
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        self("PATCH", path, {"status": status})

    def gone(self):
        """Wait until no pod is left."""
        until(lambda: not self.pods_that(bool), "the pod is gone")


def play(recorder, admin, open_as):
    """Do with the cluster what the launcher does, scene by scene."""
    cluster = open_as("admin")
    recorder.scene = "life"
    engine = EnginePod(cluster, PLAN)
    engine.create()
    until(lambda: admin.pods_that(lambda pod: pod["spec"].get("nodeName")), "the pod is scheduled")
    engine.state()
    admin.run_pod()
    engine.alive()
    engine.node_port()
    engine.logs()
    for kind in ("Deployment", "Service", "Secret"):
        cluster.labelled(kind, "default", f"{LAUNCH_LABEL}=1")
    engine.kill()
    admin.gone()
    engine.alive()
    engine.restart()
    until(lambda: admin.pods_that(lambda pod: pod["spec"].get("nodeName")), "the pod is back")
    engine.alive()
    engine.remove(30)
    admin.gone()
    refused(lambda: cluster.read(deployment_of(PLAN)))

    recorder.scene = "too many cards"
    greedy = EnginePod(cluster, GREEDY)
    greedy.create()
    until(lambda: admin.pods_that(lambda pod: pod["status"].get("conditions")), "the scheduler says no")
    greedy.state()
    greedy.logs()
    greedy.remove(30)
    admin.gone()

    recorder.scene = "a quota"
    quota = "/api/v1/namespaces/default/resourcequotas"
    admin("POST", quota, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    until(lambda: admin("GET", f"{quota}/none")["status"].get("hard"), "the quota holds")
    held = EnginePod(cluster, replace(PLAN, secrets={}))
    held.create()
    deployment = f"/apis/apps/v1/namespaces/default/deployments/{PLAN.name}"

    def failed():
        conditions = admin("GET", deployment)["status"].get("conditions", ())
        return any(one["type"] == "ReplicaFailure" for one in conditions)

    until(failed, "the Deployment says why there is no pod")
    held.state()
    held.remove(30)
    admin("DELETE", f"{quota}/none")

    recorder.scene = "refusals"
    for name, token, plan in REFUSED:
        del name
        refused(lambda token=token, plan=plan: open_as(token).create(deployment_of(plan)))
    cluster.create(deployment_of(PLAN))
    refused(lambda: cluster.create(deployment_of(PLAN)))
    cluster.delete(deployment_of(PLAN))


def refused(act):
    """Do what the server must not let happen."""
    try:
        act()
    except ClusterRefused:
        return
    raise SystemExit("the server did what it should have refused")


if __name__ == "__main__":
    main()
