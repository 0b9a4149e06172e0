import json
from pathlib import Path

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.cli import main
from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.target_file import load_target
from rackgate.engines.launchers import settings_checkers
from rackgate.engines.launchers.members import parts_of
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.decode import decode
from rackgate.nouns.slo import STAGES
from rackgate.nouns.target import Target
from rackgate.run.payloads import target_entry

METRICS = shipped_registry().metrics

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
WANTED = {
    "one-gpu-vllm-docker",
    "8gpu-node",
    "two-node-ssh",
    "kubernetes",
    "triton",
    "nim",
    "groq-beside-gpu",
    "llama-cpp-cpu",
}


def test_there_is_an_example_for_each_kind_of_rack():
    assert WANTED - {path.stem for path in EXAMPLES} == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_valid_target(path):
    target = load_target(path, settings_checkers())
    assert target.engines
    assert {card for spec in target.engines for card in spec.cards} <= {card.name for card in target.cards}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_target_is_read_again_from_what_the_first_record_says_of_it(path):
    target = load_target(path, settings_checkers())
    assert target == decode(Target, json.loads(json.dumps(target_entry(target))))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_is_for_and_holds_no_key(path):
    text = path.read_text()
    assert text.startswith("# ")
    assert "Bearer" not in text
    assert f"{Path.home()}/" not in text


def test_the_members_of_an_engine_are_declared_with_roles_and_cards():
    (split,) = load_target(Path("examples/prefill-decode.toml").absolute(), settings_checkers()).engines
    assert [(part.short, part.role, part.front, len(part.spec.cards)) for part in parts_of(split)] == [
        ("prefill", "prefill", False, 4),
        ("decode", "decode", False, 4),
        ("router", "router", True, 0),
    ]


def test_a_target_with_a_fault_is_refused_with_all_of_them(tmp_path, capsys):
    path = tmp_path / "bad.toml"
    path.write_text(
        '[target]\nname = "x"\nmodel = "m"\n[[engine]]\nname = "e"\nlauncher = "container"\n'
        '[engine.settings]\nengine = "vllm"\ncdi_devices = ["gpu0"]\n'
        'members = [{ role = "x", comand = [] }]\n'
    )
    assert main(["bundle", "list", str(path)]) == 4
    assert capsys.readouterr().err.splitlines() == [
        f"{path}: engine[0].settings: 'cdi_devices': a CDI name is VENDOR/CLASS=NAME, not 'gpu0'",
        f"{path}: engine[0].settings: members[0]: unknown key 'comand'; did you mean 'command'?",
        f"{path}: engine[0].settings: members[0]: 'name' is missing: it must be a non-empty string",
    ]


@pytest.fixture
def local_target(tmp_path):
    """Write a target whose program, model and tokenizer are here, and one file that is not."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    path = tmp_path / "rack.toml"

    def write(*, weights):
        if weights:
            (model / "model.safetensors").write_bytes(b"0")
        path.write_text(
            '[target]\nname = "x"\nmodel = "m"\n[[engine]]\nname = "e"\nlauncher = "process"\npool = "cpu"\n'
            f'[engine.settings]\nengine = "llama-cpp"\ncommand = ["sh", "-c", "x"]\nmodel_path = "{model}"\n'
        )
        return path

    return write


def test_a_bundle_names_program_model_tokenizer_and_weights(local_target, capsys):
    assert main(["bundle", "check", str(local_target(weights=True)), "--json"]) == 0
    needs = json.loads(capsys.readouterr().out)
    assert {(need["kind"], need["here"]) for need in needs if need["wanted_by"] == "e"} == {
        ("command", True),
        ("model", True),
        ("data", True),
        ("tokenizer", True),
    }
    assert {"pytest-rackgate", "pytest"} <= {need["name"] for need in needs if need["kind"] == "wheel"}


def test_a_missing_file_is_told_and_makes_the_exit_code_1(local_target, capsys):
    path = local_target(weights=False)
    assert main(["bundle", "check", str(path)]) == 1
    assert "missing     data" in capsys.readouterr().out
    assert main(["bundle", "list", str(path)]) == 0


def test_an_image_on_a_daemon_that_does_not_answer_cannot_be_told(tmp_path, capsys):
    path = tmp_path / "rack.toml"
    path.write_text(
        '[target]\nname = "x"\nmodel = "m"\n[[engine]]\nname = "e"\nlauncher = "container"\npool = "cpu"\n'
        '[engine.settings]\nimage = "a:1"\ndocker_host = "unix:///no/such/socket"\n'
    )
    assert main(["bundle", "check", str(path)]) == 1
    assert "cannot tell image     a:1  no Docker daemon answers" in capsys.readouterr().out


def test_nothing_left_behind_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == "nothing was left behind\n"


def test_the_example_in_containers_is_judged_in_every_stage_but_the_one_over_nodes():
    target = load_target(Path("examples/docker-two-engines.toml").absolute(), settings_checkers())
    registry = shipped_registry()
    acceptance = load_acceptance(None, "smoke", metrics=registry.metrics, target=target)
    checks = plan_checks(target, acceptance.slos, metrics=METRICS, probes=acceptance.probes)
    judged = {check.slo.stage for check in checks if not check.declared_absent}
    assert set(STAGES) - judged == {"cross_node"}
    whole = {check.slo.stage for check in checks} - {c.slo.stage for c in checks if c.declared_absent}
    assert {"two_card", "fault_injection"} <= whole  # batch_retry also asks kernels that nobody opens here
