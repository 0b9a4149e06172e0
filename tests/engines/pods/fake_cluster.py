"""A small API server for the kubernetes launcher: it keeps objects and plays a pod's life from a script.

The shapes of its answers follow the Kubernetes API reference (apps/v1 Deployment, v1 Pod, Service, Secret,
Event, Status). A pod that is told to run is a real process with a real port on loopback.
"""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rackgate.engines.launchers.ports import free_port

ENGINE = Path(__file__).parents[1] / "tiny_engine.py"
MOMENT = "2026-11-30T10:00:00Z"


def container_status(**said):
    """Return a container's status with all that a kubelet says of one."""
    plain = {"name": "engine", "image": "registry.example/engine:1", "imageID": "", "lastState": {}}
    return {**plain, "ready": False, "restartCount": 0, **said}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ],
}
NEVER_PULLED = {
    "phase": "Pending",
    "hostIP": "127.0.0.1",
    "containerStatuses": [
        container_status(
            state={
                "waiting": {"reason": "ErrImageNeverPull", "message": 'Container image "x:1" is not present'}
            }
        )
    ],
}
CRASHED = {
    "phase": "Running",
    "hostIP": "127.0.0.1",
    "containerStatuses": [
        container_status(
            state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
            lastState={"terminated": {"exitCode": 1, "reason": "Error"}},
            restartCount=1,
        )
    ],
}
OUT_OF_MEMORY = {
    "phase": "Running",
    "hostIP": "127.0.0.1",
    "containerStatuses": [container_status(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})],
}
REFUSED = {
    "conditions": [
        {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot',
        }
    ]
}


class FakeCluster:
    """`script` is `run`, or the status of every pod; `deployment` is the status of every Deployment."""

    def __init__(self, script="run", *, deployment=None, forbidden=False, log=b"INFO loading\n"):
        self.script, self.deployment, self.forbidden, self.log = script, deployment or {}, forbidden, log
        self.objects, self.requests, self.engine, self.generation, self.version = {}, [], None, 0, 0
        self.node_port = free_port()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop_engine()
        self.server.shutdown()
        self.server.server_close()

    def kubeconfig(self, path):
        host, port = self.server.server_address
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "rack",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
                    "users": [{"name": "u", "user": {"token": "cluster-token"}}],
                    "contexts": [{"name": "rack", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        return str(path)

    def kinds(self):
        return sorted(kind for kind, _ in self.objects)

    def manifest(self, kind):
        return next(body for (found, _), body in self.objects.items() if found == kind)

    def answer(self, method, path, query, body):
        """Return (status, body) of one request."""
        if self.forbidden and method == "POST":
            return 403, _status(403, 'deployments.apps is forbidden: User "u" cannot create resource')
        match = re.fullmatch(
            r"/apis?/(?:apps/)?v1/namespaces/([\w-]+)/(\w+)(?:/([\w.-]+))?(/log|/scale)?", path
        )
        if match is None:
            return 404, _status(404, f"no path {path}")
        _, plural, name, part = match.groups()
        if plural == "pods":
            return self._pods(method, part == "/log", query)
        if plural == "events":
            about = query.get("fieldSelector", [""])[0].partition("=")[2]
            return 200, _list("EventList", "v1", [_event(about)] if about.startswith("rackgate-") else [])
        return self._object(method, plural, name, body)

    def _object(self, method, plural, name, body):
        if method == "POST":
            return self._create(plural, body)
        if name is None:
            items = [_in_list(body) for (kind, _), body in self.objects.items() if kind == plural]
            return 200, _list(*LISTS[plural], items)
        if (plural, name) not in self.objects:
            return 404, _status(404, f'{plural} "{name}" not found')
        if method == "DELETE":
            if plural == "deployments":
                self._scaled(0)
            gone = self.objects.pop((plural, name))
            # A Service comes back as it was, of the others only that they are gone is told.
            return 200, gone if plural == "services" else _deleted(plural, gone)
        if method == "PATCH":
            self._scaled(body["spec"]["replicas"])
            return 200, self._scale(name, body["spec"]["replicas"])
        return 200, self.objects[plural, name]

    def _create(self, plural, body):
        """Keep an object as the server does: with what it adds itself."""
        name = body["metadata"]["name"]
        if (plural, name) in self.objects:
            return 409, _status(409, f'{plural} "{name}" already exists')
        self.objects[plural, name] = body
        self.version += 1
        facts = {"uid": f"uid-{self.version}", "resourceVersion": str(self.version)}
        body["metadata"] |= {**facts, "creationTimestamp": MOMENT}
        if plural == "services":
            body["spec"] |= {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "sessionAffinity": "None"}
            body["status"] = {"loadBalancer": {}}
            if body["spec"].get("type") == "NodePort":
                body["spec"]["ports"][0]["nodePort"] = self.node_port
        if plural == "deployments":
            body["metadata"]["generation"] = 1
            body["status"] = self.deployment
            self._scaled(body["spec"]["replicas"])
        return 201, body

    def _scale(self, name, replicas):
        metadata = self.objects["deployments", name]["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: metadata[key] for key in kept},
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas},
        }

    def _scaled(self, replicas):
        self._stop_engine()
        if replicas and self.script == "run":
            self.generation += 1
            command = [sys.executable, str(ENGINE), "--port", str(self.node_port)]
            self.engine = subprocess.Popen(command)

    def _stop_engine(self):
        if self.engine is not None:
            self.engine.kill()
            self.engine.wait()
            self.engine = None

    def _pods(self, method, log, query):
        if log:
            return 200, self.log
        if method == "DELETE":
            pod = self._pod()
            self._stop_engine()
            return 200, {"kind": "Pod", "apiVersion": "v1", **pod}
        deployments = [body for (kind, _), body in self.objects.items() if kind == "deployments"]
        there = self.engine is not None if self.script == "run" else bool(deployments) and not self.deployment
        if not there:
            return 200, _list("PodList", "v1", [])
        label = query["labelSelector"][0].partition("=")[2]
        assert deployments[0]["spec"]["template"]["metadata"]["labels"]["rackgate.io/launch"] == label
        return 200, _list("PodList", "v1", [self._pod()])

    def _pod(self):
        (deployment,) = [body for (kind, _), body in self.objects.items() if kind == "deployments"]
        template = deployment["spec"]["template"]
        facts = {"name": f"pod-{self.generation}", "namespace": deployment["metadata"]["namespace"]}
        metadata = {**template["metadata"], **facts, "creationTimestamp": MOMENT, "uid": "uid-pod"}
        return {"metadata": metadata, "spec": template["spec"], "status": self._pod_status()}

    def _pod_status(self):
        if self.script != "run":
            return self.script
        digest = "registry.example/engine@sha256:" + "a" * 64
        running = container_status(state={"running": {"startedAt": MOMENT}}, imageID=digest, ready=True)
        return {"phase": "Running", "hostIP": "127.0.0.1", "containerStatuses": [running]}

    def _handler(self):
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                parts = urlsplit(self.path)
                cluster.requests.append((self.command, parts.path, self.headers.get("authorization")))
                status, answer = cluster.answer(self.command, parts.path, parse_qs(parts.query), body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PATCH = handle_any  # noqa: N815

        return Handler


LISTS = {
    "deployments": ("DeploymentList", "apps/v1"),
    "services": ("ServiceList", "v1"),
    "secrets": ("SecretList", "v1"),
}


def _list(kind, version, items):
    return {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items}


def _in_list(body):
    """Return an object as it stands in a list, where kind and version are the list's alone."""
    return {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}


def _event(about):
    return {
        "metadata": {"name": f"{about}.17", "namespace": "default"},
        "involvedObject": {"kind": "Deployment", "namespace": "default", "name": about},
        "type": "Normal",
        "reason": "Pulled",
        "message": "image  there",
        "firstTimestamp": MOMENT,
        "lastTimestamp": MOMENT,
        "count": 1,
    }


def _deleted(plural, body):
    details = {"name": body["metadata"]["name"], "group": "apps" if plural == "deployments" else ""}
    details |= {"kind": plural, "uid": body["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _status(code, message):
    reasons = {403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}
    said = {"status": "Failure", "code": code, "reason": reasons[code], "message": message}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **said}
