from dataclasses import replace

import pytest

from rackgate.engines.signature import reset_prefix_cache, signature
from rackgate.nouns.engine import Engine
from rackgate.nouns.target import EngineSpec, Member

SPEC = EngineSpec(
    name="a",
    launcher="container",
    model="m",
    members=(Member(node="n1", cards=("n1/gpu0",)),),
    settings={"engine": "vllm", "image": "i:1", "env": {"A": "1"}, "env_from": ["HF_TOKEN"]},
)


def changed(**settings):
    return replace(SPEC, settings={**SPEC.settings, **settings})


@pytest.mark.parametrize(
    "other",
    [replace(SPEC, name="b"), changed(ready_timeout_s=5), changed(pull="missing"), changed(host_port=9000)],
    ids=["name", "deadline", "pull", "port"],
)
def test_what_is_not_of_the_server_does_not_count(other):
    assert signature(SPEC, "sha256:1") == signature(other, "sha256:1")


@pytest.mark.parametrize(
    "other",
    [
        changed(context_tokens=4096),
        changed(env={"A": "2"}),
        changed(env_from=["OTHER"]),
        changed(extra_args=["--enforce-eager"]),
        changed(model_path="/models/other"),
        changed(members=[{"name": "x"}]),
        replace(SPEC, model="other"),
        replace(SPEC, members=(Member(node="n1", cards=("n1/gpu1",)),)),
    ],
    ids=["option", "environment", "secret", "argument", "path", "members", "model", "card"],
)
def test_what_makes_another_server_counts(other):
    assert signature(SPEC, "sha256:1") != signature(other, "sha256:1")


def test_the_image_counts_by_its_digest_where_that_is_known():
    assert signature(SPEC, "sha256:1") != signature(SPEC, "sha256:2")
    assert signature(SPEC, "sha256:1") == signature(changed(image="i:latest"), "sha256:1")


def test_a_value_of_a_secret_does_not_count(monkeypatch):
    before = signature(SPEC)
    monkeypatch.setenv("HF_TOKEN", "another-value")
    assert signature(SPEC) == before


def test_a_cache_that_cannot_be_reset_is_told(served):
    url = served()
    assert reset_prefix_cache(Engine(spec=SPEC, url=url)) is False
    assert reset_prefix_cache(Engine(spec=replace(SPEC, settings={}), url=url)) is False
