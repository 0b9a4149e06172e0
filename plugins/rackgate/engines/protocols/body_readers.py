"""Read an answer's body while it arrives: a stream of events, or one body."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackgate.engines.protocols.answer import Answer, AnswerEnd, AnswerSoFar, Ending
from rackgate.engines.protocols.learned_events import (
    LONGEST_WORD,
    Effect,
    Interpret,
    Learned,
    Template,
    plain_text,
    plain_word,
    preface_of,
)
from rackgate.engines.protocols.sse import EventTooLong, SseParser

_WHO = b'"system_fingerprint"'
_SAYS_WHO = re.compile(_WHO + rb': ?"[^"]')

MAX_BODY_BYTES = 32 * 1024 * 1024
_DATA = b"data: "


class StreamReader:
    """Reads a streamed answer: events by `interpret`, arrivals from the caller.

    `terminal_due` says whether the protocol has a terminal signal, without which the answer is
    truncated. With `learned` events that are known already are not parsed again.
    """

    def __init__(
        self, interpret: Interpret, *, terminal_due: bool = True, learned: Learned | None = None
    ) -> None:
        self._interpret = interpret
        self._terminal_due = terminal_due
        self._learned = learned
        self._parser: SseParser | None = None
        self._preface = b""
        self._mark = b"data: "
        self._like: Template | None = None
        self._before = self._after = b""
        self._between = learned is not None
        self.reading = AnswerSoFar()

    @property
    def last_token_ns(self) -> int | None:
        """Arrival of the latest token-bearing chunk."""
        tokens = self.reading.token_ns
        return tokens[-1] if tokens else None

    @property
    def done_seen(self) -> bool:
        """True once the terminal signal came."""
        return self.reading.done_seen

    def take(self, reads: Sequence[tuple[int, bytes]]) -> None:
        """Take several reads of the body, each with its arrival; what is known is not parsed again."""
        reading = self.reading
        token_ns, texts = reading.token_ns, reading.text
        before = after = b""
        begin = end = 0
        flows = False
        for t_ns, data in reads:
            if flows and data.startswith(before) and data.endswith(after):
                said = data[begin:end]
                text = plain_word(said) if len(said) <= LONGEST_WORD else plain_text(said)
                if text is not None:  # mostly a read is one event that differs in its text alone
                    reading.events += 1
                    token_ns.append(t_ns)
                    texts.append(text)
                    continue
            self._take(t_ns, data)
            before, after = self._before, self._after
            begin, end = len(before), -len(after)
            known_who = reading.system_fingerprint is not None or _WHO not in before + after
            flows = bool(before and texts) and self._between and not reading.done_seen and known_who
        if reads:
            reading.t_ns = reads[-1][0]

    def _take(self, t_ns: int, data: bytes) -> None:
        """Take one read: events that are as expected but for their text, then one that is known, or parse."""
        reading, learned = self.reading, self._learned
        reading.t_ns = t_ns
        if not self._between or learned is None or self._says_who(data):
            self.feed(t_ns, data)
            return
        if self._like is None:
            self._meet(preface_of(data, len(_DATA)), learned)
        place = self._tokens(data, 0)
        while place < len(data):
            known = learned.known(data[place:], self._mark)
            end = len(data)
            if known is None:  # then perhaps the next event by itself
                end = data.find(b"\n\n", place) + 2
                known = learned.known(data[place:end], self._mark)
                if known is None:
                    self.feed(t_ns, data[place:])
                    return
            reading.events += known.events
            known.effect.apply(reading)
            place = self._tokens(data, end) if end < len(data) else end

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""
        reading, parser = self.reading, self._parser
        reading.t_ns = t_ns
        if parser is None:
            parser = self._parser = SseParser(begun=bool(reading.events))
        payloads = parser.whole_events(data)
        if payloads is not None:
            effects = [self._event("", payload) for payload in payloads]
            if self._learned is not None:
                self._learned.remember(payloads, effects, self._mark)
            return
        try:
            events = parser.feed(data)
        except EventTooLong as error:
            reading.malformed = reading.malformed or str(error)
            events = []
        for name, payload in events:
            self._event(name, payload)
        self._between = self._learned is not None and parser.between_events

    def end(self, t_ns: int, ending: Ending, detail: str = "") -> AnswerEnd:
        """Return how the answer ended; `t_ns` is when the exchange did and `ending` how."""
        if self._parser is not None:
            self._end_events(self._parser, ending)
        return self.reading.judge(t_ns, ending, detail, terminal_due=self._terminal_due)

    def _end_events(self, parser: SseParser, ending: Ending) -> None:
        reading = self.reading
        malformed = reading.malformed
        for name, payload in parser.close():
            self._event(name, payload)
        if reading.malformed and not malformed:  # the body ended inside an event: cut, not garbage
            reading.malformed = ""
            reading.warnings["the last event is cut"] = None
        if ending is Ending.COMPLETE and not reading.events and parser.ignored:
            reading.malformed = "a 200 that is no event stream"

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""
        ended = self.end(t_ns, ending, detail)
        return self.reading.answer(ended, comments=0 if self._parser is None else self._parser.comments)

    def _event(self, name: str, payload: bytes) -> Effect | None:
        """Take one event; return its effect if that is known and no token."""
        reading = self.reading
        reading.events += 1
        learned = None if name or self._says_who(payload) else self._learned
        if learned is None:
            self._parse(name, payload)
            return None
        if not self._preface or not payload.startswith(self._preface):
            preface = preface_of(payload)
            if preface:
                self._meet(preface, learned)
        else:
            preface = self._preface
        tail = payload[len(preface) :]
        effect = learned.effects[bool(preface)].get(tail)
        if effect is not None:
            effect.apply(reading)
        elif not self._one_of(learned, preface, tail) and self._parse(name, payload):
            learned.learn(preface, tail)
        return effect

    def _says_who(self, payload: bytes) -> bool:
        """Return whether an event says who answers for the first time: such a one is read in full."""
        if self.reading.system_fingerprint is not None or _WHO not in payload:
            return False
        return _SAYS_WHO.search(payload) is not None

    def _parse(self, name: str, payload: bytes) -> bool:
        """Return whether an event could be understood."""
        try:
            self._interpret(self.reading, name, payload)
        except (ValueError, RecursionError) as error:
            self.reading.malformed = self.reading.malformed or f"event {self.reading.events}: {error}"
            return False
        return True

    def _one_of(self, learned: Learned, preface: bytes, tail: bytes) -> bool:
        """Take an event that differs from a known one in its text alone; False if it does not."""
        if self.reading.done_seen:
            return False
        for template in learned.templates[bool(preface)]:
            text = template.text(tail)
            if text is not None:
                self.reading.token(text)
                if template is not self._like:
                    self._expect(preface, template)
                return True
        return False

    def _meet(self, preface: bytes, learned: Learned) -> None:
        """Expect events that begin so, and first the like of what was learned first."""
        self._preface = preface
        self._mark = _DATA + preface
        templates = learned.templates[bool(preface)]
        if templates:
            self._expect(preface, templates[0])

    def _expect(self, preface: bytes, template: Template) -> None:
        """Look for the like of a known event in the reads that follow."""
        self._like = template
        self._before = b"%b%b%b" % (_DATA, preface, template.before)
        self._after = template.after + b"\n\n"

    def _tokens(self, data: bytes, place: int) -> int:
        """Take the events from there on that are as expected but for their text; return where they end."""
        before, after = self._before, self._after
        reading = self.reading
        while before and data.startswith(before, place) and not reading.done_seen:
            begin = place + len(before)
            end = data.find(b'"', begin)
            text = plain_text(data[begin:end]) if data.startswith(after, end) else None
            if text is None:
                break
            reading.events += 1
            reading.token(text)
            place = end + len(after)
        return place


class BodyReader:
    """Reads an answer that comes as one body; its tokens all arrive with the last read."""

    def __init__(self, interpret: Interpret, *, warning: str = "") -> None:
        self._interpret = interpret
        self._parts: list[bytes] = []
        self._size = 0
        self.reading = AnswerSoFar()
        if warning:
            self.reading.warnings[warning] = None

    @property
    def last_token_ns(self) -> int | None:
        """None: nothing is known before the body is whole."""
        return None

    @property
    def done_seen(self) -> bool:
        """False: only the end of the body says so."""
        return False

    def take(self, reads: Sequence[tuple[int, bytes]]) -> None:
        """Take several reads of the body, each with its arrival."""
        for t_ns, data in reads:
            self.feed(t_ns, data)

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""
        self.reading.t_ns = t_ns
        self._size += len(data)
        if self._size <= MAX_BODY_BYTES:
            self._parts.append(data)

    def end(self, t_ns: int, ending: Ending, detail: str = "") -> AnswerEnd:
        """Return how the answer ended; `t_ns` is when the exchange did and `ending` how."""
        reading = self.reading
        reading.events = 1
        if self._size > MAX_BODY_BYTES:
            reading.malformed = f"a body of more than {MAX_BODY_BYTES} bytes"
        elif ending is Ending.COMPLETE:
            try:
                self._interpret(reading, "", b"".join(self._parts))
            except (ValueError, RecursionError) as error:
                reading.malformed = f"body: {error}"
        return reading.judge(t_ns, ending, detail, terminal_due=False)

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""
        return self.reading.answer(self.end(t_ns, ending, detail))
