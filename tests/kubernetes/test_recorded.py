"""The kubernetes launcher against what a real API server answered; record.sh says how that was recorded.

What we send today must be what was sent then: a manifest that changes needs a new recording.
"""

import importlib.util
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rackgate.engines.launchers.pods.cluster import ClusterRefused, open_cluster
from rackgate.engines.launchers.pods.engine import EnginePod
from rackgate.engines.launchers.pods.manifests import LAUNCH_LABEL, deployment_of
from rackgate.engines.launchers.signatures import explain

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "recorded.json").read_text())
_SPEC = importlib.util.spec_from_file_location("record", HERE / "record.py")
record = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(record)


class Replay:
    """Answers each request with what was answered then, in its order; the last one again and again."""

    def __init__(self, scene):
        self.said, self.strange, self.asked = {}, [], []
        for exchange in RECORDED["exchanges"]:
            if exchange["scene"] == scene:
                self.said.setdefault((exchange["method"], exchange["path"]), []).append(exchange)

    def answer(self, method, path, sent):
        self.asked.append((method, path))
        there = self.said.get((method, path))
        if there is None:
            self.strange.append(f"{method} {path}")
            return 404, "application/json", b"{}"
        exchange = there.pop(0) if len(there) > 1 else there[0]
        if sent != exchange["sent"]:
            self.strange.append(f"{method} {path} sent another body than was recorded")
        answer = exchange["answer"]
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        return exchange["status"], exchange["content_type"], data


@pytest.fixture
def replay(tmp_path):
    """Open a recorded scene as a cluster; fail for what was never asked then."""

    @contextmanager
    def opened(scene):
        played = Replay(scene)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def any_method(self):
                size = int(self.headers.get("content-length") or 0)
                sent = json.loads(self.rfile.read(size)) if size else None
                status, kind, data = played.answer(self.command, self.path, sent)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PATCH = any_method  # noqa: N815

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = "http://{}:{}".format(*server.server_address)
        cluster = open_cluster(record.kubeconfig(tmp_path / "kubeconfig", address, "t"), None)
        try:
            yield cluster
        finally:
            cluster.close()
            server.shutdown()
            server.server_close()
        assert played.strange == []

    return opened


def test_an_engine_comes_up_is_killed_restarted_and_deleted(replay):
    with replay("life") as cluster:
        engine = EnginePod(cluster, record.PLAN)
        engine.create()
        waiting = engine.state()
        assert (waiting.running, waiting.ended, waiting.waiting) == (False, "", "Pending")
        assert engine.alive()
        running = engine.state()
        assert (running.host_ip, running.ended) == ("10.0.0.11", "")
        assert running.image_id.endswith("@sha256:" + "a" * 64)
        assert 30_000 <= engine.node_port() <= 32_767
        said = engine.logs().decode()
        assert "event Normal ScalingReplicaSet: Scaled up replica set" in said
        assert "event Normal Scheduled: Successfully assigned default/" in said
        for kind in ("Deployment", "Service", "Secret"):
            (found,) = cluster.labelled(kind, "default", f"{LAUNCH_LABEL}=1")
            assert (found["kind"], found["metadata"]["name"]) == (kind, record.PLAN.name)
        engine.kill()
        assert not engine.alive()
        engine.restart()
        assert not engine.alive()
        engine.remove(30)
        with pytest.raises(ClusterRefused, match=r"404 deployments\.apps \"rackgate-e-1\" not found"):
            cluster.read(deployment_of(record.PLAN))


def test_too_many_cards_are_told_in_the_schedulers_words(replay):
    with replay("too many cards") as cluster:
        engine = EnginePod(cluster, record.GREEDY)
        engine.create()
        state = engine.state()
        assert state.ended.startswith("Unschedulable: 0/1 nodes are available:")
        assert not state.settled
        assert explain(state.ended).name == "no_free_card"
        assert "event Warning FailedScheduling: 0/1 nodes are available" in engine.logs().decode()
        engine.remove(30)


def test_a_quota_that_lets_no_pod_in_ends_the_wait(replay):
    with replay("a quota") as cluster:
        engine = EnginePod(cluster, record.replace(record.PLAN, secrets={}))
        engine.create()
        state = engine.state()
        assert state.ended.startswith("FailedCreate: pods ")
        assert "exceeded quota: none" in state.ended
        engine.remove(30)


def test_refusals_are_told_in_the_servers_own_words(replay):
    said = {}
    with replay("refusals") as cluster:
        for name, _, plan in record.REFUSED:
            with pytest.raises(ClusterRefused) as refused:
                cluster.create(deployment_of(plan))
            said[name] = str(refused.value)
        cluster.create(deployment_of(record.PLAN))
        with pytest.raises(ClusterRefused) as refused:
            cluster.create(deployment_of(record.PLAN))
        cluster.delete(deployment_of(record.PLAN))
    assert said["a user without rights"].startswith(
        '403 deployments.apps is forbidden: User "guest" cannot create'
    )
    assert said["a token that nobody has"] == "401 Unauthorized"
    assert "quantities must match the regular expression" in said["a quantity that is none"]
    assert said["a namespace that is not there"] == '404 namespaces "nowhere" not found'
    assert str(refused.value) == '409 deployments.apps "rackgate-e-1" already exists'
