from pathlib import Path

import pytest

from rackgate.config.target_file import load_target
from rackgate.engines.launchers import settings_checkers

EXAMPLES = Path(__file__).parents[2] / "examples"
CHECKERS = settings_checkers()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_is_a_valid_target(example):
    assert load_target(example, CHECKERS).engines


def test_good_settings_have_no_problems():
    assert CHECKERS["process"]({"command": ["serve"], "env": {"A": "1"}, "ready_timeout_s": 5}) == []
    assert CHECKERS["container"]({"image": "a:b", "shm_size": "1g", "device_ids": []}) == []
    assert CHECKERS["remote"]({}) == []


def test_all_problems_of_a_table_are_told_at_once_with_the_nearest_key():
    problems = CHECKERS["process"]({"comand": ["serve"], "port": 70000, "env": {"A": 1}})
    assert problems == [
        "unknown key 'comand'; did you mean 'command'?",
        "'port' must be a port number from 1 to 65535, not 70000",
        "'env' must be a table of strings, not {'A': 1}",
        "'command' is missing: it must be a list of strings",
    ]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"image": "a", "shm_size": "lots"}, "'shm_size' must be a size such as '512m' or '1g', not 'lots'"),
        ({"image": "a", "pull": "often"}, "'pull' must be one of never, missing, always, not 'often'"),
        (
            {"image": "a", "docker_host": "h:2375"},
            "'docker_host' must be unix://SOCKET, tcp://HOST:PORT or ssh://HOST, not 'h:2375'",
        ),
        ({"image": "a", "volumes": {"/m": "m"}}, "'volumes': the container's path must be absolute, not 'm'"),
        ({"image": "a", "ready_timeout_s": True}, "'ready_timeout_s' must be a positive number, not True"),
        ({"image": ""}, "'image' must be a non-empty string, not ''"),
    ],
)
def test_a_container_table_with_one_fault_has_one_problem(settings, problem):
    assert CHECKERS["container"](settings) == [problem]


def test_an_unknown_key_far_from_any_lists_the_valid_ones():
    assert CHECKERS["remote"]({"zzz": 1}) == [
        "unknown key 'zzz'; valid: context, engine, kubeconfig, namespace, pods, ready_timeout_s"
    ]


def test_examples_hold_no_path_of_one_machine():
    files = [path for path in EXAMPLES.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if f"{Path.home()}/" in path.read_text()]
