"""Read an answer's body while it arrives: a stream of events, or one body."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rackgate.engines.learned import Interpret, Learned, Template, plain_text, preface_of
from rackgate.engines.protocol import Answer, Ending
from rackgate.engines.reading import Reading, Verdict
from rackgate.engines.sse import EventTooLong, SseParser

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BodyReader", "StreamReader"]

_WHO = b'"system_fingerprint"'
_SAYS_WHO = re.compile(_WHO + rb': ?"[^"]')

MAX_BODY_BYTES = 32 * 1024 * 1024


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
        self._parser = SseParser()
        self._preface = b""
        self._before = self._after = b""
        self._like: tuple[bytes, Template | None] = (b"", None)
        self.reading = Reading()

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
        """Take several reads of the body, each with its arrival.

        A read that is one event as the one before it but for its text is not parsed again.
        """
        reading, parser = self.reading, self._parser
        token_ns, texts = reading.token_ns, reading.text
        before, after = self._before, self._after
        begin, end = len(before), -len(after)
        like = bool(before) and parser.between_events and not reading.done_seen
        for t_ns, data in reads:
            if like and data.startswith(before) and data.endswith(after):
                text = plain_text(data[begin:end])
                if text is not None:
                    reading.events += 1
                    token_ns.append(t_ns)
                    texts.append(text)
                    continue
            self.feed(t_ns, data)
            before, after = self._before, self._after
            begin, end = len(before), -len(after)
            like = bool(before) and parser.between_events and not reading.done_seen
        if reads:
            reading.t_ns = reads[-1][0]

    def feed(self, t_ns: int, data: bytes) -> None:
        """Take one read of the body with its arrival."""
        reading = self.reading
        reading.t_ns = t_ns
        payloads = self._parser.whole_events(data)
        if payloads is not None:
            for payload in payloads:
                self._event("", payload)
            return
        try:
            events = self._parser.feed(data)
        except EventTooLong as error:
            reading.malformed = reading.malformed or str(error)
            return
        for name, payload in events:
            self._event(name, payload)

    def end(self, t_ns: int, ending: Ending, detail: str = "") -> Verdict:
        """Return how the answer ended; `t_ns` is when the exchange did and `ending` how."""
        reading = self.reading
        malformed = reading.malformed
        for name, payload in self._parser.close():
            self._event(name, payload)
        if reading.malformed and not malformed:  # the body ended inside an event: cut, not garbage
            reading.malformed = ""
            reading.warnings["the last event is cut"] = None
        if ending is Ending.COMPLETE and not reading.events and self._parser.ignored:
            reading.malformed = "a 200 that is no event stream"
        return reading.judge(t_ns, ending, detail, terminal_due=self._terminal_due)

    def close(self, t_ns: int, ending: Ending, detail: str = "") -> Answer:
        """Return the answer; `t_ns` is when the exchange ended and `ending` how."""
        verdict = self.end(t_ns, ending, detail)
        return self.reading.answer(verdict, comments=self._parser.comments)

    def _event(self, name: str, payload: bytes) -> None:
        reading = self.reading
        reading.events += 1
        learned = None if name or self._says_who(payload) else self._learned
        preface = self._preface
        tail = payload
        if learned is not None:
            if not preface or not payload.startswith(preface):
                preface = preface_of(payload)
                self._preface = preface or self._preface
            tail = payload[len(preface) :]
            effect = learned.effects[bool(preface)].get(tail)
            if effect is not None:
                effect.apply(reading)
                return
            if self._one_of(learned.templates[bool(preface)], preface, tail):
                return
        try:
            self._interpret(reading, name, payload)
        except (ValueError, RecursionError) as error:
            if not reading.malformed:
                reading.malformed = f"event {reading.events}: {error}"
            return
        if learned is not None:
            learned.learn(preface, tail)

    def _says_who(self, payload: bytes) -> bool:
        """Return whether an event says who answers for the first time: such a one is read in full."""
        if self.reading.system_fingerprint is not None or _WHO not in payload:
            return False
        return _SAYS_WHO.search(payload) is not None

    def _one_of(self, templates: Sequence[Template], preface: bytes, tail: bytes) -> bool:
        """Take an event that differs from a known one in its text alone; False if it does not."""
        if self.reading.done_seen:
            return False
        for template in templates:
            text = template.text(tail)
            if text is not None:
                self.reading.token(text)
                self._expect(preface, template)
                return True
        return False

    def _expect(self, preface: bytes, template: Template) -> None:
        """Look for the like of this event in the reads that follow."""
        if preface is not self._like[0] or template is not self._like[1]:
            self._like = preface, template
            self._before = b"data: %b%b" % (preface, template.before)
            self._after = template.after + b"\n\n"


class BodyReader:
    """Reads an answer that comes as one body; its tokens all arrive with the last read."""

    def __init__(self, interpret: Interpret, *, warning: str = "") -> None:
        self._interpret = interpret
        self._parts: list[bytes] = []
        self._size = 0
        self.reading = Reading()
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

    def end(self, t_ns: int, ending: Ending, detail: str = "") -> Verdict:
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
