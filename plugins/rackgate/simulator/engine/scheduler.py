"""Continuous batching: a loop of steps with absolute deadlines, as in an inference engine.

A step decodes one token for every running sequence and prefills a chunk of tokens, first come first
served. It lasts `step_base_ms + step_per_sequence_ms * batch`, or, when nothing decodes, as long as its
prefill needs. Times stretch with the card's slowdowns and its clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from rackgate.simulator.card_state import CardState, Slot
from rackgate.simulator.knobs import CardKnobs

_PREFILL_CHUNK_TOKENS = 256
_FULL_BATCH = 8
_LEAST_INTENSITY = 0.55
_LATE_S = 0.25  # a deadline missed by more means that the process was stopped


class TokenSequence(Protocol):
    """A sequence of tokens that the scheduler advances."""

    prompt_tokens: int
    max_tokens: int
    prefill_left: float

    def produce(self) -> bool:
        """Emit one token; return True after the last token."""


class Scheduler:
    """Runs the steps of one engine; `siblings` are the other cards of its node, `others` all other cards."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        knobs: CardKnobs,
        state: CardState,
        *,
        siblings: Iterable[CardState] = (),
        others: Iterable[CardState] = (),
    ) -> None:
        self._loop = loop
        self._knobs = knobs
        self._state = state
        self._siblings = tuple(siblings)
        self._others = tuple(others)
        self._waiting: deque[TokenSequence] = deque()
        self._prefilling: deque[TokenSequence] = deque()
        self._decoding: list[TokenSequence] = []
        self._deadline = 0.0
        self._busy_since = 0.0
        self._stepping = False
        self.kv_tokens = 0

    @property
    def running(self) -> int:
        """Number of sequences in the batch."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Number of sequences that wait for a place in the batch."""
        return len(self._waiting)

    def submit(self, sequence: TokenSequence) -> None:
        """Queue a sequence; starts the steps if the engine was idle."""
        self._waiting.append(sequence)
        if not self._stepping:
            now = self._loop.time()
            if now - self._deadline > 1.0:
                self._busy_since = now
            self._stepping = True
            self._begin_step(now)
        else:
            self._state[Slot.WAITING] = len(self._waiting)

    def cancel(self, sequence: TokenSequence) -> None:
        """Drop a sequence whose client has disconnected."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        elif sequence in self._prefilling:
            self._prefilling.remove(sequence)
            self._release(sequence)
        elif sequence in self._decoding:
            self._decoding.remove(sequence)
            self._release(sequence)

    def _admit(self) -> None:
        knobs = self._knobs
        while self._waiting and self.running < knobs.max_num_seqs:
            need = self._waiting[0].prompt_tokens + self._waiting[0].max_tokens
            if self.running and self.kv_tokens + need > knobs.kv_capacity_tokens:
                return
            sequence = self._waiting.popleft()
            self.kv_tokens += need
            self._prefilling.append(sequence)

    def _release(self, sequence: TokenSequence) -> None:
        self.kv_tokens -= sequence.prompt_tokens + sequence.max_tokens

    @property
    def another_is_down(self) -> bool:
        """Whether another engine of the rack does not serve."""
        return any(card[Slot.SERVING] == 0 for card in self._others)

    def _stretch(self, start: float) -> float:
        knobs = self._knobs
        stretch = 1.0 / (self._state[Slot.CLOCK_FACTOR] or 1.0)
        if knobs.fade_per_s:
            stretch *= 1.0 + knobs.fade_per_s * (start - self._busy_since)
        if knobs.sibling_slowdown != 1.0 and any(card[Slot.RUNNING] > 0 for card in self._siblings):
            stretch *= knobs.sibling_slowdown
        if knobs.survivor_slowdown != 1.0 and self.another_is_down:
            stretch *= knobs.survivor_slowdown
        return stretch

    def _begin_step(self, start: float) -> None:
        self._admit()
        knobs, batch, stretch = self._knobs, len(self._decoding), self._stretch(start)
        rate = knobs.prefill_tokens_per_s / (knobs.prefill_slowdown * stretch)
        if batch:
            step_ms = (knobs.step_base_ms + knobs.step_per_sequence_ms * batch) * knobs.decode_slowdown
            step_s = step_ms * stretch / 1e3
            budget = rate * step_s
        else:
            budget = min(_PREFILL_CHUNK_TOKENS, sum(sequence.prefill_left for sequence in self._prefilling))
            step_s = budget / rate
        self._deadline = start + step_s
        busy = self.running
        self._publish()
        self._loop.call_at(self._deadline, self._end_step, step_s, budget, busy)

    def _end_step(self, step_s: float, budget: float, busy: int) -> None:
        state = self._state
        intensity = _LEAST_INTENSITY + (1 - _LEAST_INTENSITY) * min(1.0, busy / _FULL_BATCH)
        state[Slot.BUSY_S] += step_s
        state[Slot.WORK_S] += step_s * intensity
        still_decoding = []
        for sequence in self._decoding:
            if sequence.produce():
                self._release(sequence)
            else:
                still_decoding.append(sequence)
        self._decoding = still_decoding
        self._prefill(budget)
        if self._decoding or self._prefilling or self._waiting:
            now = self._loop.time()
            self._begin_step(self._deadline if now - self._deadline < _LATE_S else now)
        else:
            self._stepping = False
            self._publish()

    def _prefill(self, budget: float) -> None:
        while self._prefilling and budget > 0:
            sequence = self._prefilling[0]
            done = min(sequence.prefill_left, budget)
            sequence.prefill_left -= done
            budget -= done
            if sequence.prefill_left > 1e-9:
                return
            self._prefilling.popleft()
            if sequence.produce():
                self._release(sequence)
            else:
                self._decoding.append(sequence)

    def _publish(self) -> None:
        state = self._state
        state[Slot.RUNNING] = self.running
        state[Slot.WAITING] = len(self._waiting)
        state[Slot.KV_TOKENS] = self.kv_tokens
