"""The request bodies of a load: seeded, unique, and cheap enough to be made while streams are timed.

Without a tokenizer lengths are approximate: one short English word counts as one token. The recorded
`prompt_tokens` are the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from math import log, sqrt
from random import Random
from typing import Protocol

from rackgate.engines.protocols.protocol import ChatProtocol, ChatRequest
from rackgate.loadgen.requests.trace import MOONCAKE_BLOCK_TOKENS, TraceRequest
from rackgate.loadgen.requests.words import WORDS, WordPool, words_of
from rackgate.nouns.load import Load, Shape, Spread

_SALT_WORDS = 12
_BLOCKS = 16
_TASK = "Continue this list of words as a story:"
_TASK_WORDS = 8
_PLACEHOLDER = "@@"
_WORD_OF_BYTE = tuple(WORDS[byte % len(WORDS)].encode() for byte in range(256))


class PromptSource(Protocol):
    """Makes the bodies of one endpoint's requests."""

    def body(self, kind: str, index: int) -> bytes:
        """Return the body of request `index`; `kind` is `w` for warm-up, `r` for the rest."""


class UniformPrompts:
    """Bodies of requests of equal lengths.

    Every prompt begins with unique words, so that a prefix cache cannot answer; the rest is one of a few
    blocks of random words. The same identity and index give the same bytes.
    """

    def __init__(
        self, protocol: ChatProtocol, *, model: str, prompt_tokens: int, output_tokens: int, identity: str
    ) -> None:
        self._identity = identity
        salt = min(_SALT_WORDS, max(1, prompt_tokens - _TASK_WORDS))
        filling = max(0, prompt_tokens - _TASK_WORDS - salt)
        self._salt_words = salt
        words = Random(f"blocks|{identity}").choices(WORDS, k=filling)
        turns = [filling * turn // _BLOCKS for turn in range(_BLOCKS)]
        self._blocks = [" ".join(words[turn:] + words[:turn]).encode() for turn in turns]
        prompt = f"{_TASK} {_PLACEHOLDER}" if prompt_tokens > _TASK_WORDS else _PLACEHOLDER
        body = protocol.body(ChatRequest(model=model, prompt=prompt, max_tokens=output_tokens))
        self._before, _, self._after = body.partition(_PLACEHOLDER.encode())

    def body(self, kind: str, index: int) -> bytes:
        """Return the body of request `index`."""
        chance = sha256(f"{self._identity}|{kind}{index}".encode()).digest()
        salt = b" ".join(map(_WORD_OF_BYTE.__getitem__, chance[: self._salt_words]))
        block = self._blocks[chance[-1] % _BLOCKS]
        space = b" " if block else b""
        return b"".join((self._before, salt, space, block, self._after))


class VariedPrompts:
    """Bodies of requests that differ: lengths, shared prefixes, conversations, traces.

    The same identity gives the same bytes. The assistant's turns of a conversation are generated here,
    because the engine's answers would make the requests depend on the engine. Warm-up shares no prefix with
    measured requests.
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
            prompt, answer_tokens = self._user_turn(kind, conversation, earlier)
            answer = self._pool.text(f"{self._identity}|answer|{kind}{conversation}.{earlier}", answer_tokens)
            history.append((prompt, answer))
        prompt, output_tokens = self._user_turn(kind, conversation, turn)
        return self._body(prompt, output_tokens, tuple(history))

    def _user_turn(self, kind: str, conversation: int, turn: int) -> tuple[str, int]:
        """Return the user's prompt of one turn, and its number of output tokens."""
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

    def _traced(self, request: TraceRequest, index: int) -> bytes:
        if request.text:
            return self._body(request.text, request.output_tokens, ())
        if not request.blocks:
            prompt = self._pool.text(f"{self._identity}|trace{index}", request.prompt_tokens)
            return self._body(prompt, request.output_tokens, ())
        parts = []
        for place, block in enumerate(request.blocks):
            tokens = min(MOONCAKE_BLOCK_TOKENS, request.prompt_tokens - place * MOONCAKE_BLOCK_TOKENS)
            parts.append(self._pool.text(f"{self._identity}|block|{block}", tokens))
        return self._body(" ".join(parts), request.output_tokens, ())

    def _body(self, prompt: str, output_tokens: int, history: tuple[tuple[str, str], ...]) -> bytes:
        return self._protocol.body(
            ChatRequest(model=self._model, prompt=prompt, max_tokens=output_tokens, history=history)
        )


def draw_length(mean: int, spread: Spread | None, random: Random) -> int:
    """Return a random length in tokens, at least 1; without a spread it is the mean.

    Mean and deviation are those of the lognormal distribution itself, not of its logarithm.
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
