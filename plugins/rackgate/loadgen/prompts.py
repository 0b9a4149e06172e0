"""Request bodies of a load: seeded, salted, and cheap enough to be made while streams are timed.

Lengths are approximate: one short English word is taken for one token. No tokeniser is loaded, for the
load generator knows nothing about the model; the server's own `prompt_tokens` is what gets recorded.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from rackgate.engines.protocol import ChatRequest

if TYPE_CHECKING:
    from rackgate.engines.protocol import ChatProtocol

__all__ = ["Prompts"]

_WORDS = tuple(
    """
    time year people way day man thing woman life child world school state family student group country
    problem hand part place case week company system program question work government number night point
    home water room mother area money story fact month lot right study book eye job word business issue
    side kind head house service friend father power hour game line end member law car city community
    name president team minute idea body information back parent face others level office door health
    person art war history party result change morning reason research girl guy moment air teacher force
    education foot boy age policy music market sense nation plan college interest death experience effect
    use class control field development role effort rate heart drug show leader light voice wife police
    """.split()  # noqa: SIM905 - a list of 140 lines says no more
)
_SALT_WORDS = 12
_BLOCKS = 16
_TASK = "Continue this list of words as a story:"
_TASK_WORDS = 8
_HOLE = "@@"


class Prompts:
    """Bodies of one endpoint's requests.

    Every prompt begins with words of its own, so that no prefix cache answers in the engine's place;
    the rest is one of a few blocks of random words. The same identity and name give the same bytes.
    """

    def __init__(
        self, protocol: ChatProtocol, *, model: str, prompt_tokens: int, output_tokens: int, identity: str
    ) -> None:
        self._identity = identity
        salt = min(_SALT_WORDS, max(1, prompt_tokens - _TASK_WORDS))
        filling = max(0, prompt_tokens - _TASK_WORDS - salt)
        self._salt_words = salt
        words = Random(f"blocks|{identity}").choices(_WORDS, k=filling)
        turns = [filling * turn // _BLOCKS for turn in range(_BLOCKS)]
        self._blocks = [" ".join(words[turn:] + words[:turn]).encode() for turn in turns]
        prompt = f"{_TASK} {_HOLE}" if prompt_tokens > _TASK_WORDS else _HOLE
        body = protocol.body(ChatRequest(model=model, prompt=prompt, max_tokens=output_tokens))
        self._before, _, self._after = body.partition(_HOLE.encode())

    def body(self, name: str) -> bytes:
        """Return the body of the request `name`."""
        random = Random(f"{self._identity}|{name}")
        salt = " ".join(random.choices(_WORDS, k=self._salt_words)).encode()
        block = self._blocks[random.randrange(_BLOCKS)]
        space = b" " if block else b""
        return b"".join((self._before, salt, space, block, self._after))
