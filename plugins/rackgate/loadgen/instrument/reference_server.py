"""A reference server with a scripted schedule that stamps the write of each first token.

It streams like OpenAI: head and role chunk at once, the first token after its scripted time, later tokens at
a fixed pace. `GET /stamps` returns the moment (monotonic ns) of the first token's write by X-Request-Id. The
script is one line of JSON on standard input; the server prints its port and exits when its standard input
ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import Any

import httptools

from rackgate.loadgen.child_process import raise_priority

_NICENESS = -5
"""Above other processes, but below the load generator, so that this server never delays its stamps."""

_WORDS = (
    "rack",
    "card",
    "fan",
    "link",
    "node",
    "heat",
    "flow",
    "core",
    "port",
    "wire",
    "lamp",
    "door",
    "bolt",
)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The schedule: request i has its first token after `ttft_ms[i % len]`, then one every `gap_ms`.

    `blank_stamps` withholds the stamps; `die_after` ends the process at that many requests.
    """

    ttft_ms: tuple[float, ...] = (30.0, 47.0, 64.0, 38.0, 55.0)
    gap_ms: float = 20.0
    blank_stamps: bool = False
    die_after: int | None = None

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "model": "reference", "choices": [choice]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


_TOKENS = tuple(_chunk(_frame({"content": f" {word}"})) for word in _WORDS)
_BEGIN = _HEAD + _chunk(_frame({"role": "assistant", "content": ""}))


def _end(tokens: int) -> bytes:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"
    return _chunk(_frame({}, "stop") + last) + b"0\r\n\r\n"


class _Reference:
    """State shared by all connections."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.stamps: dict[str, int] = {}
        self.requests = 0

    def next_ttft_s(self) -> float:
        ttft_ms = self.script.ttft_ms[self.requests % len(self.script.ttft_ms)]
        self.requests += 1
        if self.script.die_after is not None and self.requests >= self.script.die_after:
            os._exit(70)
        return ttft_ms / 1e3


class _Connection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, shared: _Reference) -> None:
        self._shared = shared
        self._transport: Any = None
        self._parser: Any = None
        self._url = b""
        self._request_id = ""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._url = self._body = b""
        self._request_id = ""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._request_id = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url == b"/stamps":
            stamps = {} if self._shared.script.blank_stamps else self._shared.stamps
            body = json.dumps(stamps).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            return
        request = json.loads(self._body)
        tokens = int(request.get("max_tokens") or request.get("max_completion_tokens") or 1)
        loop = asyncio.get_running_loop()
        self._transport.write(_BEGIN)
        first = loop.time() + self._shared.next_ttft_s()
        loop.call_at(first, self._token, loop, first, 0, tokens)

    def _token(self, loop: asyncio.AbstractEventLoop, first: float, index: int, tokens: int) -> None:
        if self._transport.is_closing():
            return
        data = _TOKENS[index % len(_TOKENS)]
        if index == 0:
            self._shared.stamps[self._request_id] = perf_counter_ns()
        if index + 1 == tokens:
            self._transport.write(data + _end(tokens))
            return
        self._transport.write(data)
        moment = first + (index + 1) * self._shared.script.gap_ms / 1e3
        loop.call_at(moment, self._token, loop, first, index + 1, tokens)


async def _serve(script: Script) -> None:
    loop = asyncio.get_running_loop()
    shared = _Reference(script)
    server = await loop.create_server(lambda: _Connection(shared), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    over = asyncio.Event()
    loop.add_reader(0, over.set)
    await over.wait()


def main() -> int:
    """Serve until standard input ends."""
    raise_priority(_NICENESS)
    raw = json.loads(sys.stdin.readline())
    raw["ttft_ms"] = tuple(raw["ttft_ms"])
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(Script(**raw)))
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
