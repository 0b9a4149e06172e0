import json
import socket
import time
from dataclasses import replace

import pytest
from local_server import Answer, serving

from rackgate.cli import main
from rackgate.cli.doctor_output import as_text
from rackgate.doctor.snapshot import Snapshot
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import RootRunner
from rackgate.nouns.target import Target
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings

RACK = """\
[target]
name = "rack"
model = "{model}"

[[node]]
name = "node1"
cards = 2
exporter = "{exporter}"

[[engine]]
name = "e0"
launcher = "remote"
url = "{first}"
cards = ["node1/gpu0"]

[[engine]]
name = "e1"
launcher = "remote"
url = "{second}"
cards = ["node1/gpu1"]
"""


@pytest.fixture(scope="module")
def rack():
    with start_rack(RackSettings(nodes=1, cards=2)) as running:
        yield running


@pytest.fixture
def file(rack, tmp_path):
    """Write the rack's target, with other addresses where a test gives them."""

    def written(**other):
        first, second = (engine.url for engine in rack.engines)
        given = {
            "model": rack.target.model,
            "exporter": rack.target.nodes[0].exporter_url,
            "first": first,
            "second": second,
        }
        path = tmp_path / "rack.toml"
        path.write_text(RACK.format(**{**given, **other}))
        return str(path)

    return written


@pytest.fixture
def agreed(tmp_path):
    """Write an acceptance file without the row that only an opened host answers on this rack."""
    path = tmp_path / "agreed.toml"
    path.write_text(
        '[[slo]]\nid = "preflight.recovery_action"\ndisabled = true\nreason = "no host is open"\n'
    )
    return str(path)


def test_where_everything_answers_all_will_run(file, agreed, capsys):
    assert 0 == main(["doctor", file(), "--slo", agreed])
    told = capsys.readouterr().out
    assert "UNKNOWN" not in told
    assert "all 2 cards: card_present, telemetry_coverage" in " ".join(told.split())
    assert told.splitlines()[0].startswith("rack (")


def test_a_page_that_nobody_serves_is_named_once_with_what_cures_it(file, capsys):
    assert 1 == main(["doctor", file(exporter="http://127.0.0.1:1/metrics")])
    told = capsys.readouterr().out
    assert 1 == told.count("start dcgm-exporter on the node")
    assert "will be UNKNOWN" in told.splitlines()[-1]


def test_a_program_gets_every_check_with_its_outlook_input_and_cure(file, capsys):
    with serving(lambda _: Answer(200, 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n')) as url:
        assert 1 == main(["doctor", file(exporter=url), "--json"])
    whole = json.loads(capsys.readouterr().out)
    checks = {one["id"]: one for one in whole["checks"]}
    lost = checks["preflight.card_present @ node1/gpu1"]
    peak = checks["single_card.power_peak @ node1/gpu0"]
    assert ("FAIL", "UNKNOWN") == (lost["outlook"], peak["outlook"])
    assert "card:power_instant_w|card:power_w" == peak["needed"]
    assert "DCGM_FI_DEV_POWER_USAGE_INSTANT" in peak["cure"]
    assert sum(whole["summary"].values()) == len(checks)


def test_a_page_that_never_comes_does_not_keep_anyone_waiting(file, capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"
        started = time.monotonic()
        assert 1 == main(["doctor", file(exporter=address), "--limit", "2"])
    assert time.monotonic() - started < 15
    assert "did not answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.toml"], "nowhere.toml: cannot be read"),
        (["sim:2x2"], "a run makes the simulated rack itself"),
        (["http://127.0.0.1:1"], "--model is needed"),
        (["ftp://x", "--model", "m"], "cannot be read"),
        (["nowhere.toml", "--profile", "swift"], "nowhere.toml"),
    ],
)
def test_what_is_no_target_is_a_usage_error(arguments, said, capsys):
    assert 4 == main(["doctor", *arguments])
    assert said in capsys.readouterr().err


def test_a_profile_that_does_not_exist_is_a_usage_error(file, capsys):
    assert 4 == main(["doctor", file(), "--profile", "swift"])
    assert "no profile 'swift'" in capsys.readouterr().err


def test_what_is_not_asked_of_any_engine_is_said_once(file, capsys):
    main(["doctor", file()])
    assert 1 == capsys.readouterr().out.count("offers tool_calls")


def test_a_url_is_examined_as_an_endpoint(rack, capsys):
    assert 0 == main(["doctor", rack.engines[0].url, "--model", rack.target.model])
    assert "not assessed from here" in capsys.readouterr().out.splitlines()[-1]


def test_the_node_that_differs_is_named_beside_what_most_have(tmp_path):
    facts = {}
    for name, kernel in {"n1": "6.8.0", "n2": "6.8.0", "n3": "5.15.0"}.items():
        folder = tmp_path / name / "proc" / "sys" / "kernel"
        folder.mkdir(parents=True)
        (folder / "osrelease").write_text(f"{kernel}\n")
        facts[name] = read_host(RootRunner(tmp_path / name))
    seen = Snapshot(target=Target(name="rack", model="m", grade="unproven"), deadline_s=1.0, facts=facts)
    (row,) = [line for line in as_text([], seen, "smoke").splitlines() if "kernel" in line]
    assert ["kernel", "6.8.0", "(2", "of", "3)", "n3:", "5.15.0"] == row.split()
    alike = replace(seen, facts={name: facts[name] for name in ("n1", "n2")})
    assert "agree in every fact compared" in as_text([], alike, "smoke")
