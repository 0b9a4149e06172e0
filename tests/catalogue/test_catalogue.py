import json
import re
import tomllib
from pathlib import Path

import pytest

from rackgate.cli import main
from rackgate.engines.catalogue import BadCatalogue, catalogue, parse_catalogue
from rackgate.engines.launchers import settings_checkers
from rackgate.engines.launchers.filling import filled_in, placeholders, with_defaults
from rackgate.engines.launchers.progress import ProgressWatch, latest_mark
from rackgate.engines.launchers.signatures import explain
from rackgate.nouns.target import EngineSpec, Member

STARTED = [name for name, entry in catalogue().items() if entry.command]
BOXED = [name for name, entry in catalogue().items() if entry.image]


def spec(cards=1, **settings):
    members = (Member(node="n1", cards=tuple(f"n1/gpu{index}" for index in range(cards))),)
    return EngineSpec(name="e1", launcher="container", model="served", members=members, settings=settings)


def words(name, *, in_container, cards=1, **settings):
    own = spec(cards, engine=name, **settings)
    filled = with_defaults(own.settings, in_container=in_container, cards=cards)
    values = {**placeholders(own, "0.0.0.0", 8000), "extra_port": "8002"}
    return filled_in(tuple(filled["command"]), values)


def test_all_engines_of_the_field_are_known():
    assert list(catalogue()) == [
        "vllm",
        "sglang",
        "tensorrt-llm",
        "nim",
        "triton",
        "llama-cpp",
        "tgi",
        "openai",
    ]


@pytest.mark.parametrize("name", STARTED)
def test_a_command_is_filled_in_to_the_last_brace(name):
    line = words(
        name, in_container=False, model_path="/models/m", context_tokens=4096, memory_utilisation=0.8, cards=2
    )
    assert not re.search(r"[{}]", " ".join(line))
    assert any("/models/m" in word for word in line)


@pytest.mark.parametrize("name", BOXED)
def test_an_image_engine_needs_only_its_name(name):
    assert settings_checkers()["container"]({"engine": name}) == []
    assert not re.search(r"[{}]", " ".join(words(name, in_container=True)))


def test_the_tensor_parallel_size_is_the_number_of_cards_unless_told():
    assert "--tensor-parallel-size" not in words("vllm", in_container=True, cards=1)
    four = words("vllm", in_container=True, cards=4)
    assert four[four.index("--tensor-parallel-size") + 1] == "4"
    two = words("vllm", in_container=True, cards=4, tensor_parallel=2)
    assert two[two.index("--tensor-parallel-size") + 1] == "2"


def test_options_without_a_value_leave_no_words_and_extra_args_come_last():
    line = words("vllm", in_container=True, extra_args=["--enforce-eager"])
    assert "--max-model-len" not in line
    assert line[-1] == "--enforce-eager"


def test_what_the_target_says_wins():
    filled = with_defaults(
        {"engine": "vllm", "image": "mine:1", "command": ["x"], "shm_size": "2g", "ready_timeout_s": 5},
        in_container=True,
    )
    assert (filled["image"], filled["command"], filled["ready_timeout_s"]) == ("mine:1", ["x"], 5)
    assert (filled["shm_size"], "ipc" in filled) == ("2g", False)


def test_an_engine_that_is_told_by_variables_gets_those_that_have_a_value():
    filled = with_defaults(
        {"engine": "nim", "image": "i", "context_tokens": 8192}, in_container=True, cards=1
    )
    assert filled["env"] == {
        "NIM_SERVED_MODEL_NAME": "{model}",
        "NIM_SERVER_PORT": "{port}",
        "NIM_MAX_MODEL_LEN": "{context_tokens}",
    }


def test_an_unknown_engine_is_told_with_the_nearest():
    assert settings_checkers()["container"]({"engine": "vlm"}) == ["no engine 'vlm'; did you mean 'vllm'?"]
    assert settings_checkers()["process"]({"engine": "zzz"})[0].startswith(
        "no engine 'zzz'; valid: vllm, sglang"
    )


def test_an_engine_without_an_image_or_a_command_of_its_own_says_so():
    assert settings_checkers()["container"]({"engine": "nim"}) == [
        "'image' is missing: it must be a non-empty string"
    ]
    assert settings_checkers()["process"]({"engine": "openai"}) == [
        "'command' is missing: it must be a list of strings"
    ]


LINES = tomllib.loads((Path(__file__).parent / "logs.toml").read_text())["line"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['engine']}-{line['name']}")
def test_a_known_line_of_an_engines_log_gives_its_sizes_and_what_to_try(line):
    explained = explain(f"INFO loading\n{line['log']}\n", catalogue()[line["engine"]].failures)
    assert (explained.name, explained.hint) == (line["name"], line["hint"])


@pytest.mark.parametrize("name", catalogue())
def test_hints_are_whole_sentences_without_open_places(name):
    for known in catalogue()[name].failures:
        assert known.layer in ("service", "model")
        assert known.cause in ("environment", "configuration", "credentials", "model", "engine")
        assert known.hint[0].islower() or known.hint.startswith(("GGUF", "NGC"))


PROGRESS = {
    "vllm": (
        (
            "INFO Starting to load model m...\nLoading safetensors checkpoint shards:  25% Completed | 1/4\n"
            "Loading safetensors checkpoint shards:  75% Completed | 3/4\n"
        ),
        "loading weights 75%",
    ),
    "sglang": (
        "Load weight begin. avail mem=70 GB\nCapture cuda graph begin. This can take\n",
        "capturing graphs",
    ),
    "triton": ("loading: gen:1\nsuccessfully loaded 'gen'\n", "loaded gen"),
    "llama-cpp": ("main: loading model\nload_tensors: offloading 32 layers\n", "loading weights"),
}


@pytest.mark.parametrize("name", PROGRESS)
def test_the_last_step_in_the_log_is_told(name):
    log, text = PROGRESS[name]
    assert latest_mark(log, catalogue()[name].progress) == text


def test_each_step_is_told_once():
    log, told = bytearray(b"Load weight begin\n"), []
    watch = ProgressWatch(
        catalogue()["sglang"].progress, {"a": lambda: bytes(log)}, told.append, interval_s=0
    )
    watch.look()
    watch.look()
    log += b"Load weight end\n"
    watch.look()
    assert [line.partition(" (")[0] for line in told] == ["a: loading weights", "a: weights loaded"]


def test_a_catalogue_with_faults_names_all_of_them():
    with pytest.raises(BadCatalogue) as bad:
        parse_catalogue(
            '[engine.x]\ntitle = "X"\nprotocols = []\ncommand = []\narguments = []\nport = 1\n'
            'loaded = ""\nready_timeout_s = 1\nhealth_path = "h"\nmodels_path = "/m"\n'
            'metrics_path = ""\ncold_start_s = [1]\ncolour = 1\n'
            '[[engine.x.failure]]\nname = "f"\nlayer = "model"\npattern = "("\nhint = "h {size}"\n'
        )
    assert str(bad.value).splitlines() == [
        "x: unknown key colour",
        "x: f: the pattern is not valid: missing ), unterminated subpattern at position 0",
        "x: health_path is not a path",
        "x: cold_start_s must be the usual range, two numbers",
    ]


def test_the_command_lists_every_engine(capsys):
    assert main(["engines"]) == 0
    shown = capsys.readouterr().out
    assert [f"{name}: {entry.title}" for name, entry in catalogue().items()] == re.findall(
        r"^\S+: .*$", shown, re.MULTILINE
    )


def test_the_command_gives_json_and_refuses_an_unknown_name(capsys):
    assert main(["engines", "vllm", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["failures"][0]["name"]) == ("vllm", "kv_cache_too_small")
    assert main(["engines", "vlm"]) == 4
    assert capsys.readouterr().err.startswith("rackgate engines: no engine vlm; valid: vllm")
