"""Prompts have the length that the model's own tokeniser says."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.requests.trace import read_trace
from rackgate.loadgen.requests.words import WORDS, token_counter, words_of
from rackgate.loadgen.worker.endpoint_client import EndpointClient
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load, Shape, Spread


def made(path, texts, vocabulary):
    """Train a byte-pair tokeniser, as models have it: some words are one token, most are several."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    return path, made(path, [f"a {word} {word}" for word in WORDS for _ in range(3)], 600)


def bodies(load, count):
    endpoint = Endpoint(entity="e", url="http://x", model="m")
    client = EndpointClient(LoadPlan(load=load, endpoints=(endpoint,), label="t", spool="", seed=1), 0, None)
    requests = (client.request("r", index)[1] for index in range(count))
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in requests]


def test_a_prompt_has_as_many_tokens_as_were_asked_for(model):
    path, tokenizer = model
    load = Load(name="l", prompt_tokens=300, output_tokens=4, tokenizer=str(path.parent))
    prompts = [body["messages"][0]["content"] for body in bodies(load, 20)]
    # A word at the very beginning has no space before it, which may take another token.
    assert all(abs(len(tokenizer.encode(prompt).ids) - 300) <= 2 for prompt in prompts)
    without = bodies(Load(name="l", prompt_tokens=300, output_tokens=4), 1)[0]["messages"][0]["content"]
    assert len(tokenizer.encode(without).ids) > 330


def test_a_spread_of_lengths_is_one_of_tokens(model):
    path, tokenizer = model
    spread = Spread(shape=Shape.UNIFORM, deviation=50.0)
    load = Load(name="l", prompt_tokens=100, output_tokens=4, tokenizer=str(path), prompt_spread=spread)
    counts = [len(tokenizer.encode(body["messages"][0]["content"]).ids) for body in bodies(load, 200)]
    assert 48 <= min(counts) < 60
    assert 140 < max(counts) <= 152


def test_only_words_of_one_token_are_taken(model):
    path, tokenizer = model
    words = words_of(str(path))
    assert 16 <= len(words) < len(set(WORDS))
    assert all(len(tokenizer.encode(f" {word}").ids) == 1 for word in words)


def test_the_texts_of_a_trace_are_counted_by_it(model, tmp_path):
    path, tokenizer = model
    talk = {"conversations": [{"from": "human", "value": "time year"}, {"from": "gpt", "value": "people"}]}
    (tmp_path / "s.json").write_text(json.dumps([talk]))
    (request,) = read_trace(tmp_path / "s.json", tokens_in=token_counter(str(path))).requests
    assert len(tokenizer.encode("time year").ids) == request.prompt_tokens
    assert len(tokenizer.encode("people").ids) == request.output_tokens


def test_a_tokeniser_that_splits_our_words_is_refused(tmp_path):
    made(tmp_path / "tokenizer.json", ["zzz"], 257)
    with pytest.raises(ValueError, match="words only 0 are one token each"):
        words_of(str(tmp_path))
