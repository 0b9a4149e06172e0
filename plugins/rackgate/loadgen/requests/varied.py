"""Request bodies of loads whose requests differ: lengths, shared prefixes, conversations, traces."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from random import Random

from rackgate.engines.protocols.protocol import ChatProtocol, ChatRequest
from rackgate.loadgen.requests.trace import MOONCAKE_BLOCK_TOKENS, TraceRequest
from rackgate.loadgen.requests.words import WordPool, words_of
from rackgate.nouns.load import Load, Shape, Spread


def draw_length(mean: int, spread: Spread | None, random: Random) -> int:
    """Return one length in tokens, at least 1; without a spread it is the mean.

    The lognormal has the given mean and standard deviation itself, not those of its logarithm.
    """
    if spread is None:
        return mean
    if spread.shape is Shape.UNIFORM:
        drawn = random.uniform(mean - spread.deviation, mean + spread.deviation)
    elif spread.shape is Shape.NORMAL:
        drawn = random.gauss(mean, spread.deviation)
    else:
        variance = log(1 + (spread.deviation / mean) ** 2)
        drawn = random.lognormvariate(log(mean) - variance / 2, sqrt(variance))
    length = max(1, spread.least, round(drawn))
    return length if spread.most is None else min(length, spread.most)


class VariedPrompts:
    """Bodies of one endpoint's requests by the load's own rules; the same identity gives the same bytes.

    What a conversation repeats as the assistant's words are words of ours: with the engine's own, the
    requests would depend on the engine. Warm-up shares no prefix with what is measured.
    """

    def __init__(
        self,
        protocol: ChatProtocol,
        load: Load,
        *,
        model: str,
        identity: str,
        trace: Sequence[TraceRequest] = (),
    ) -> None:
        self._protocol = protocol
        self._load = load
        self._model = model
        self._identity = identity
        self._trace = trace
        self._pool = WordPool(words_of(load.tokenizer), identity)
        self._prefixes: dict[str, str] = {}

    def body(self, kind: str, index: int) -> bytes:
        """Return the body of request `index`."""
        if self._trace and kind == "r":
            return self._traced(self._trace[index], index)
        conversation, turn = divmod(index, self._load.turns)
        history = []
        for earlier in range(turn):
            prompt, answer_tokens = self._said(kind, conversation, earlier)
            answer = self._pool.text(f"{self._identity}|answer|{kind}{conversation}.{earlier}", answer_tokens)
            history.append((prompt, answer))
        prompt, output_tokens = self._said(kind, conversation, turn)
        return self._body(prompt, output_tokens, tuple(history))

    def _said(self, kind: str, conversation: int, turn: int) -> tuple[str, int]:
        """Return what the user says in one turn, and how many tokens are asked for."""
        load = self._load
        name = f"{self._identity}|{kind}{conversation}.{turn}"
        random = Random(f"lengths|{name}")
        prompt_tokens = draw_length(load.prompt_tokens, load.prompt_spread, random)
        output_tokens = draw_length(load.output_tokens, load.output_spread, random)
        prefix_tokens = min(load.shared_prefix_tokens, prompt_tokens - 1) if turn == 0 else 0
        if not prefix_tokens:
            return self._pool.text(name, prompt_tokens), output_tokens
        group = f"{kind}{random.randrange(load.shared_prefixes)}"
        if group not in self._prefixes:
            seed = f"{self._identity}|prefix|{group}"
            self._prefixes[group] = self._pool.text(seed, load.shared_prefix_tokens)
        prefix = self._prefixes[group]
        if prefix_tokens < load.shared_prefix_tokens:
            prefix = " ".join(prefix.split(" ")[:prefix_tokens])
        return f"{prefix} {self._pool.text(name, prompt_tokens - prefix_tokens)}", output_tokens

    def _traced(self, asked: TraceRequest, index: int) -> bytes:
        if asked.text:
            return self._body(asked.text, asked.output_tokens, ())
        if not asked.blocks:
            prompt = self._pool.text(f"{self._identity}|trace{index}", asked.prompt_tokens)
            return self._body(prompt, asked.output_tokens, ())
        parts = []
        for place, block in enumerate(asked.blocks):
            tokens = min(MOONCAKE_BLOCK_TOKENS, asked.prompt_tokens - place * MOONCAKE_BLOCK_TOKENS)
            parts.append(self._pool.text(f"{self._identity}|block|{block}", tokens))
        return self._body(" ".join(parts), asked.output_tokens, ())

    def _body(self, prompt: str, output_tokens: int, history: tuple[tuple[str, str], ...]) -> bytes:
        return self._protocol.body(
            ChatRequest(model=self._model, prompt=prompt, max_tokens=output_tokens, history=history)
        )
