"""Request bodies of a load: seeded, salted, and cheap enough to be made while streams are timed.

Without a tokeniser lengths are approximate: one short English word is taken for one token, for the load
generator knows nothing about the model. The server's own `prompt_tokens` is what gets recorded.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Protocol

from rackgate.engines.protocols.protocol import ChatProtocol, ChatRequest
from rackgate.loadgen.requests.words import WORDS

_SALT_WORDS = 12
_BLOCKS = 16
_TASK = "Continue this list of words as a story:"
_TASK_WORDS = 8
_HOLE = "@@"
_WORD_OF_BYTE = tuple(WORDS[byte % len(WORDS)].encode() for byte in range(256))


class PromptSource(Protocol):
    """Makes the bodies of one endpoint's requests."""

    def body(self, kind: str, index: int) -> bytes:
        """Return the body of request `index`; `kind` is `w` for warm-up, `r` for the rest."""


class Prompts:
    """Bodies of one endpoint's requests, all of the same lengths.

    Every prompt begins with words of its own, so that no prefix cache answers in the engine's place;
    the rest is one of a few blocks of random words. The same identity and index give the same bytes.
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
        prompt = f"{_TASK} {_HOLE}" if prompt_tokens > _TASK_WORDS else _HOLE
        body = protocol.body(ChatRequest(model=model, prompt=prompt, max_tokens=output_tokens))
        self._before, _, self._after = body.partition(_HOLE.encode())

    def body(self, kind: str, index: int) -> bytes:
        """Return the body of request `index`."""
        chance = sha256(f"{self._identity}|{kind}{index}".encode()).digest()
        salt = b" ".join(map(_WORD_OF_BYTE.__getitem__, chance[: self._salt_words]))
        block = self._blocks[chance[-1] % _BLOCKS]
        space = b" " if block else b""
        return b"".join((self._before, salt, space, block, self._after))
