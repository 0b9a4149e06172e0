"""A target file may define a kind of engine that does not ship; it is used like one that does."""

import sys
import tomllib
from dataclasses import asdict, replace

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.engines.bundle import needs_of
from rackgate.engines.launchers import settings_checkers
from rackgate.engines.launchers.processes.launcher import process
from rackgate.engines.metrics_page import metrics_url
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.decode import decode
from rackgate.nouns.engine import LaunchFailed
from rackgate.nouns.slo import Scope, Slo
from rackgate.nouns.target import Target

RACK = """
[target]
name = "lab"
model = "tiny"
[[node]]
name = "here"
cards = 1
[[engine]]
name = "one"
launcher = "{launcher}"
cards = ["here/gpu0"]
{url}
[engine.settings]
engine = "lpu-serve"
"""
KIND = """
[engine_kind.lpu-serve]
title = "LPU serve"
image = "lab/lpu-serve:2"
command = ["lpu-serve", "--port", "{port}", "--model", "{model_path}"]
arguments = ["--port", "{port}"]
metrics_path = "/stats"
tells_first_tokens = true
ready_timeout_s = 20
[engine_kind.lpu-serve.options]
context_tokens = ["--context", "{context_tokens}"]
[[engine_kind.lpu-serve.failure]]
name = "no_lpu"
layer = "service"
cause = "environment"
pattern = 'no LPU at slot (?P<slot>\\d+)'
hint = "seat the LPU of slot {slot}"
"""


def target(launcher="process", kind=KIND, url="", more=""):
    text = RACK.replace("{launcher}", launcher).replace("{url}", url) + more + kind
    return parse_target(tomllib.loads(text), "rack.toml", settings_checkers())


def problems(**changes):
    with pytest.raises(ConfigError) as refused:
        target(**changes)
    return refused.value.problems


@pytest.mark.parametrize("launcher", ["process", "container", "kubernetes", "remote"])
def test_every_launcher_takes_a_kind_of_the_target_file(launcher):
    url = 'url = "http://127.0.0.1:9"' if launcher == "remote" else ""
    (engine,) = target(launcher, url=url).engines
    assert "lpu-serve" == engine.settings["engine"]


def test_its_image_is_what_the_target_needs():
    assert "lab/lpu-serve:2" in {need.name for need in needs_of(target("container"))}


def test_its_metrics_page_is_read_and_its_own_first_tokens_are_asked():
    rack = target("remote", url='url = "http://127.0.0.1:9"')
    assert "http://127.0.0.1:9/stats" == metrics_url(rack.engines[0])
    row = Slo.unjudged("single_card", "interactive", "server_ttft_difference_ms", "p95", "ms")
    row = replace(row, scope=Scope.ENGINE)
    (check,) = plan_checks(rack, [row], metrics=shipped_registry().metrics, probes={})
    assert "" == check.declared_absent


def test_its_known_failure_explains_a_start_that_fails(tmp_path):
    script = tmp_path / "lpu-serve"
    script.write_text(f"#!{sys.executable}\nprint('no LPU at slot 4')\nraise SystemExit(3)\n")
    script.chmod(0o755)
    command = f'command = ["{script}", "--port", "{{port}}"]\n'
    (engine,) = target(more=command).engines
    with pytest.raises(LaunchFailed) as failed, process(engine, run_id="r", log_dir=str(tmp_path)):
        pass
    assert ("seat the LPU of slot 4", "no_lpu") == (failed.value.hint, failed.value.explanation.name)


def test_the_kind_survives_the_records_of_a_run():
    (engine,) = decode(Target, asdict(target())).engines
    assert "LPU serve" == engine.settings["engine_kind"]["title"]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ('[engine_kind.vllm]\ncommand = ["x"]', "engine_kind.vllm: this kind ships: give yours another name"),
        ('[engine_kind.lpu-serve]\ncomand = ["x"]', "comand"),
        ('[engine_kind.lpu-serve]\ncommand = "x"', "command"),
        ('[engine_kind.lpu-serve]\ntitle = "x"', "needs a command"),
        ('[engine_kind.lpu-serve]\ncommand = ["x"]\nhealth_path = "health"', "health_path"),
        ("engine_kind = 3", "must be tables"),
        (KIND.replace("{slot}", "{place}"), "the hint names place"),
        (KIND.replace("(?P<slot>", "(?P<slot"), "is no regular expression"),
    ],
)
def test_what_is_wrong_with_a_kind_is_told_with_file_and_key(kind, problem):
    text = kind if not kind.startswith("engine_kind") else ""
    if text:
        found = problems(kind=text)
    else:
        with pytest.raises(ConfigError) as refused:
            parse_target({**tomllib.loads(RACK.replace("{launcher}", "process").replace("{url}", "")),
                          "engine_kind": 3}, "rack.toml", settings_checkers())  # fmt: skip
        found = refused.value.problems
    assert [] == [one for one in found if not one.startswith("rack.toml: engine_kind")]
    assert any(problem in one for one in found), found


def test_a_kind_that_nobody_defined_is_told_and_a_kind_in_the_settings_is_refused():
    assert ["no engine 'lpu-serve'" in one for one in problems(kind="")] == [True]
    assert "unknown key 'engine_kind'" in problems(more='engine_kind = {{ title = "x" }}'.format())[0]
