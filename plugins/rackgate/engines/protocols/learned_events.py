"""Events that were understood once and need not be parsed again.

The events of a stream repeat themselves: all of one answer begin alike (id, model, time), and what comes
after that differs from an event of an earlier answer in its text alone, or in nothing. What such an event
means is never guessed. It is taken from the protocol's own interpretation of one like it, and a text is
only put in another's place after that was tried out on the interpretation itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from rackgate.engines.protocols.answer import AnswerSoFar

Interpret: TypeAlias = Callable[[AnswerSoFar, str, bytes], None]
"""Reads one event (name, data) of a protocol; raises `ValueError` for one that cannot be understood."""

MOST_EFFECTS = 1024
MOST_TEMPLATES = 8
MOST_TRIES = 4096
LONGEST_EVENT = 4096
MOST_WORDS = 8192
LONGEST_WORD = 64

_PREFACE = re.compile(
    rb'\{(?:"(?:id|model|system_fingerprint|service_tier)": ?(?:"[ !#-\[\]-~]*"|null), ?'
    rb'|"created": ?(?:0|[1-9]\d{0,17}), ?'
    rb'|"object": ?"(?:chat\.completion\.chunk|text_completion)", ?)+'
)
"""Members that mean nothing to any protocol here, whatever else stands in the event."""

_SPECIAL = re.compile(rb'["\\\x00-\x1f]')
_ORDERED = b'"timings"'
"""Counts of llama.cpp's, which count only if no others came before."""

_MARK = b"\0"
"""Stands for the beginning of an event with its preface; no event that can be understood holds it."""

_PROBES = ("q", "another text")
_NOT_A_MOMENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an event without a token does to a reading."""

    finish_reason: str | None
    done: bool
    prompt_tokens: int | None
    completion_tokens: int | None

    def apply(self, reading: AnswerSoFar) -> None:
        """Do it."""
        if self is _NOTHING:
            return
        if self.finish_reason is not None:
            reading.finish(self.finish_reason)
        if self.done:
            reading.done()
        if self.prompt_tokens is not None or self.completion_tokens is not None:
            reading.usage(self.prompt_tokens, self.completion_tokens)


@dataclass(frozen=True, slots=True)
class Together:
    """What several events without a token do that come in one read, and how many they are."""

    effect: Effect
    events: int


@dataclass(frozen=True, slots=True)
class Template:
    """What stands before and after the text of an event that has one token and says nothing else."""

    before: bytes
    after: bytes

    def text(self, tail: bytes) -> str | None:
        """Return the text of such an event, None if it is not one beyond doubt."""
        if tail.startswith(self.before) and tail.endswith(self.after):
            return plain_text(tail[len(self.before) : -len(self.after)])
        return None


class Learned:
    """What is known about the events of one protocol; it is shared by all its readers.

    `wholes` are events from their first byte on, `tails` those that follow a preface.
    """

    def __init__(self, interpret: Interpret) -> None:
        self._interpret = interpret
        self._tries = 0
        self.effects: tuple[dict[bytes, Effect], dict[bytes, Effect]] = ({}, {})
        self.templates: tuple[list[Template], list[Template]] = ([], [])
        self.together: dict[bytes, Together] = {}

    def known(self, data: bytes, mark: bytes) -> Together | None:
        """Return what whole events do; None if that is not known.

        `mark` stands before each event of its stream that has its preface.
        """
        found = self.together.get(data.replace(mark, _MARK))
        return None if found is None or _MARK in data else found

    def remember(self, payloads: Sequence[bytes], effects: Sequence[Effect | None], mark: bytes) -> None:
        """Note what a read's first event does, and its last ones, if they are known and bear no token."""
        if effects[0] is not None:
            self._note(payloads[:1], effects[:1], mark)
        first = len(effects)
        while first and effects[first - 1] is not None:
            first -= 1
        self._note(payloads[first:], effects[first:], mark)

    def _note(self, payloads: Sequence[bytes], effects: Sequence[Effect | None], mark: bytes) -> None:
        known = [effect for effect in effects if effect is not None]
        data = b"".join([b"data: %b\n\n" % payload for payload in payloads])
        if known and len(self.together) < MOST_EFFECTS and len(data) <= LONGEST_EVENT and _MARK not in data:
            self.together[data.replace(mark, _MARK)] = Together(_joined(known), len(known))

    def learn(self, preface: bytes, tail: bytes) -> None:
        """See what an event does that was just interpreted without a fault."""
        if self._tries >= MOST_TRIES or len(preface) + len(tail) > LONGEST_EVENT or _ORDERED in tail:
            return
        self._tries += 1
        kind = bool(preface)
        said = self._tried(preface + tail)
        if isinstance(said, Effect):
            if len(self.effects[kind]) < MOST_EFFECTS:
                self.effects[kind][tail] = said
        elif said is not None and len(self.templates[kind]) < MOST_TEMPLATES:
            template = self._template(preface, tail, said)
            if template is not None:
                self.templates[kind].append(template)

    def _template(self, preface: bytes, tail: bytes, text: str) -> Template | None:
        """Return what stands around the text if it stands there once and any other may stand in its place."""
        said = text.encode("utf-8", "surrogatepass")
        if _SPECIAL.search(said) or b"\n" in tail or tail.count(b'"%b"' % said) != 1:
            return None
        before, _, after = tail.partition(b'"%b"' % said)
        template = Template(before + b'"', b'"' + after)
        for probe in _PROBES:
            if self._tried(preface + template.before + probe.encode() + template.after) != probe:
                return None
        return template

    def _tried(self, payload: bytes) -> Effect | str | None:
        """Return what an event does: its text if it has one token, its effect if none, else None."""
        scratch = AnswerSoFar()
        scratch.token_ns.append(_NOT_A_MOMENT)  # a count along with a token shows only after one
        try:
            self._interpret(scratch, "", payload)
        except (ValueError, RecursionError):
            return None
        more = (scratch.reasoning, scratch.tool_calls, scratch.server_times_s, scratch.counted)
        if any(more) or scratch.error is not None or scratch.malformed or scratch.warnings:
            return None
        if scratch.predicted_n is not None or scratch.usage_source not in (None, "usage"):
            return None
        effect = Effect(
            finish_reason=scratch.finish_reason,
            done=scratch.done_seen,
            prompt_tokens=scratch.prompt_tokens,
            completion_tokens=scratch.completion_tokens,
        )
        if len(scratch.token_ns) == 1:
            return _NOTHING if effect == _NOTHING else effect
        if len(scratch.token_ns) != 2 or len(scratch.text) != 1 or effect != _NOTHING:
            return None
        return scratch.text[0]


_NOTHING = Effect(finish_reason=None, done=False, prompt_tokens=None, completion_tokens=None)


def _joined(effects: Sequence[Effect]) -> Effect:
    """Return what effects of one moment do together; of each kind the last one stands."""

    def last(name: str) -> Any:
        said = [value for effect in effects if (value := getattr(effect, name)) is not None]
        return said[-1] if said else None

    joined = Effect(
        finish_reason=last("finish_reason"),
        done=any(effect.done for effect in effects),
        prompt_tokens=last("prompt_tokens"),
        completion_tokens=last("completion_tokens"),
    )
    return _NOTHING if joined == _NOTHING else joined


def preface_of(payload: bytes, begin: int = 0) -> bytes:
    """Return the members at an event's beginning that mean nothing."""
    found = _PREFACE.match(payload, begin)
    return found.group() if found is not None else b""


def plain_text(said: bytes) -> str | None:
    """Return the text that these bytes are inside a JSON string; None if empty, or in any doubt.

    A text without quote, escape or control byte stands for itself.
    """
    return plain_word(said) if len(said) <= LONGEST_WORD else _plain(said)


def _plain(said: bytes) -> str | None:
    if not said or _SPECIAL.search(said):
        return None
    try:
        return said.decode()
    except UnicodeDecodeError:
        return None


plain_word = lru_cache(maxsize=MOST_WORDS)(_plain)
"""The same for what is no longer than `LONGEST_WORD`: it is remembered."""
