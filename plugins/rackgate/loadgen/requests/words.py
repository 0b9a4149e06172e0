"""The words of prompts, and their lengths in tokens."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

WORDS = tuple(
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
_POOL_WORDS = 65536
_SALT_WORDS = 12


def words_of(tokenizer: str | None) -> tuple[str, ...]:
    """Return the words that are one token each, all of them without a tokenizer.

    `tokenizer` is a `tokenizer.json` or a folder that holds one. Raises `ValueError` if it cannot be used.
    """
    if tokenizer is None:
        return WORDS
    count = token_counter(tokenizer)
    single = tuple(word for word in WORDS if count(f"a {word} {word}") - count(f"a {word}") == 1)
    if len(single) < 16:
        raise ValueError(
            f"tokenizer {tokenizer}: of {len(WORDS)} words only {len(single)} are one token each"
        )
    return single


def token_counter(tokenizer: str) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text. Raises `ValueError`."""
    path = Path(tokenizer)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        library: Any = importlib.import_module("tokenizers")
    except ImportError:
        text = "needs the package 'tokenizers': pip install 'pytest-rackgate[tokenizer]'"
        raise ValueError(f"tokenizer {tokenizer}: {text}") from None
    if not path.is_file():
        raise ValueError(f"tokenizer {path}: no such file")
    try:
        made = library.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ValueError(f"tokenizer {path}: {error}") from error
    return lambda text: len(made.encode(text, add_special_tokens=False).ids)


class WordPool:
    """Generates texts of an exact number of words, cheap up to a hundred thousand words."""

    def __init__(self, words: tuple[str, ...], identity: str) -> None:
        self._words = words
        self._pool = Random(f"pool|{identity}").choices(words, k=_POOL_WORDS)

    def text(self, seed: str, count: int) -> str:
        """Return `count` words; texts of different seeds differ in their first words."""
        random = Random(seed)
        words = random.choices(self._words, k=min(_SALT_WORDS, count))
        left = count - len(words)
        place = random.randrange(_POOL_WORDS)
        while left > 0:
            part = self._pool[place : place + left]
            words += part
            left -= len(part)
            place = 0
        return " ".join(words)
