"""Against the real server, which scrapes the exporters of a simulated rack."""

import json
import shutil
import subprocess
import time
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest
from local_server import Answer, serving
from waiting import until

from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings
from rackgate.telemetry.cards.prometheus_source import PrometheusApi, PrometheusProblem, PrometheusSource
from rackgate.telemetry.reading import REQUIRED

pytestmark = pytest.mark.slow

SERVER = shutil.which("prometheus")


@pytest.fixture(scope="module")
def rack():
    with start_rack(RackSettings()) as running:
        yield running


@pytest.fixture(scope="module")
def server(rack, tmp_path_factory):
    if SERVER is None:
        pytest.fail("the package prometheus is missing: make system")
    folder = tmp_path_factory.mktemp("prometheus")
    exporters = [urlsplit(node.exporter_url) for node in rack.target.nodes]
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [
            {
                "job_name": f"dcgm-{number}",
                "metrics_path": url.path or "/metrics",
                "static_configs": [{"targets": [url.netloc]}],
            }
            for number, url in enumerate(exporters)
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    for _ in range(5):
        port = free_port()
        command = [
            *(SERVER, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        log = (folder / "log").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        if until(partial(settled, process, url)) and process.poll() is None:
            break
    yield url
    process.kill()
    process.wait(20)
    log.close()


def settled(process, url):
    return process.poll() is not None or ready(url)


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ready(url):
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_rack_that_is_monitored_needs_no_agent(server, rack):
    source = PrometheusSource(server, rack.target.nodes)
    cards = {card.name for card in rack.target.cards}
    seen = []

    def complete():
        seen.extend(one for one in source.poll() if one.value is not None)
        return cards <= {one.entity for one in seen}

    until(complete)
    source.close()
    for card in cards:
        fields = {one.field for one in seen if one.entity == card and one.value is not None}
        assert set(REQUIRED) <= fields
    assert all(abs(one.t_ns - time.perf_counter_ns()) < 60e9 for one in seen)


def test_every_scrape_comes_once(server, rack):
    source = PrometheusSource(server, rack.target.nodes)
    seen = []
    until(lambda: seen.extend(source.poll()) or len({one.t_ns for one in seen}) > 6)
    source.close()
    moments = [(one.entity, one.field, one.t_ns // 1_000_000) for one in seen if one.field == "power_w"]
    assert len(moments) == len(set(moments))


def test_history_and_range_queries_reach_into_the_past(server, rack):
    begin = time.perf_counter_ns()
    source = PrometheusSource(server, rack.target.nodes)
    seen = []
    until(lambda: seen.extend(source.poll()) or len({one.t_ns for one in seen if one.t_ns > begin}) > 4)
    history = source.history(begin, time.perf_counter_ns())
    assert {one.entity for one in history} == {card.name for card in rack.target.cards}
    source.close()
    api = PrometheusApi(server)
    now = time.time()
    result = api.range("DCGM_FI_DEV_GPU_TEMP", now - 5, now, 1.0)
    assert len(result) == len(rack.target.cards)
    assert abs(api.clock_offset_s()) < 5
    with pytest.raises(PrometheusProblem, match="parse error"):
        api.instant("this is no query {")
    api.close()


def test_a_node_that_nobody_scrapes_is_absent(server):
    node = Node(
        name="elsewhere", cards=(Card(name="elsewhere/gpu0", node="elsewhere", index=0, uuid="GPU-x"),)
    )
    source = PrometheusSource(server, [node])
    readings = source.poll()
    source.close()
    assert {one.reason for one in readings} == {Reason.ABSENT}
    assert "no series of node elsewhere" in readings[0].detail


CARD = Card(name="n1/gpu0", node="n1", index=0, uuid="GPU-A")
NODE = Node(name="n1", cards=(CARD,))


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, "no", Reason.NO_PERMISSION),
        (200, "<html>a login page</html>", Reason.UNSUPPORTED),
        (200, '{"status":"error","error":"boom"}', Reason.UNSUPPORTED),
        (502, "bad gateway", Reason.UNSUPPORTED),
    ],
)
def test_a_server_that_is_none_is_a_reason(status, body, reason):
    with serving(lambda _: Answer(status, body)) as url:
        source = PrometheusSource(url, [NODE])
        assert {one.reason for one in source.poll()} == {reason}
        source.close()


def test_scrapes_that_stopped_are_stale():
    now = time.time()
    old = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-A", "gpu": "0"},
            "values": [[now - 100, "40"]],
        }
    ]

    def answer(request):
        if "time%28%29" in request.body:
            return Answer(200, json.dumps({"status": "success", "data": {"result": [now, str(now)]}}))
        return Answer(200, json.dumps({"status": "success", "data": {"result": old}}))

    with serving(answer) as url:
        source = PrometheusSource(url, [NODE])
        first = source.poll()
        assert [one.value for one in first if one.field == "temperature_c"] == [40.0]
        again = source.poll()
        source.close()
    assert {one.reason for one in again} == {Reason.STALE}
