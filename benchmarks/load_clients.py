"""One client of the side-by-side benchmark, in a process of its own; prints what it measured as JSON.

usage: load_clients.py NAME URL CONCURRENCY REQUESTS TOKENS

`floor` is the barest thing that can be called a client: an asyncio.Protocol that stamps each read and
parses nothing. It is no load generator; it is what the event loop itself costs. `epoll` does the same
without an event loop: what Python and the kernel cost.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import time
from time import perf_counter_ns
from typing import Any

Times = dict[str, tuple[int, int]]
"""By request id: when it was sent, and when its first token arrived."""


def body_of(tokens: int) -> dict[str, Any]:
    return {
        "model": "reference",
        "messages": [{"role": "user", "content": "Tell a story about a rack of cards in a cold room."}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def slots(concurrency: int, requests: int, one: Any) -> None:
    """Hold `concurrency` requests in flight until `requests` have run; `one(index)` is one of them."""
    indexes = iter(range(requests))

    async def slot() -> None:
        for index in indexes:
            await one(index)

    await asyncio.gather(*(slot() for _ in range(concurrency)))


class Bare(asyncio.Protocol):
    """A connection that stamps its reads."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, bytes]] = []
        self.done: asyncio.Future[None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep what writes."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Stamp, keep, and see whether that was the end."""
        self.reads.append((perf_counter_ns(), data))
        if data.endswith(b"0\r\n\r\n") and self.done is not None:
            self.done.set_result(None)


def head_of(name: str, body: bytes) -> bytes:
    """Return the head of a request that says no more than it must."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: {name}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode()


async def floor(url: str, tokens: int) -> tuple[Any, Times]:
    loop = asyncio.get_running_loop()
    host, port = url.removeprefix("http://").split(":")
    free: list[Bare] = []
    times: Times = {}
    body = json.dumps(body_of(tokens)).encode()

    async def one(index: int) -> None:
        connection = free.pop() if free else (await loop.create_connection(Bare, host, int(port)))[1]
        connection.reads = []
        connection.done = loop.create_future()
        name = f"f{index}"
        sent = perf_counter_ns()
        connection.transport.write(head_of(name, body) + body)
        await connection.done
        first = next((t for t, data in connection.reads if b'"content":" ' in data), connection.reads[-1][0])
        times[name] = (sent, first)
        free.append(connection)

    return one, times


def bare_epoll(url: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    """Hold so many requests in flight on as many sockets: stamp each read, see whether that was the end."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(body_of(tokens)).encode()
    epoll = select.epoll()
    sockets = [socket.create_connection((host, int(port))) for _ in range(concurrency)]
    for one in sockets:
        epoll.register(one.fileno(), select.EPOLLIN)
    found = {one.fileno(): one for one in sockets}
    for wanted in (concurrency, requests):  # once to be warm
        began, cpu_s = perf_counter_ns(), time.process_time()
        started = min(wanted, concurrency)
        reads: dict[int, list[tuple[int, bytes]]] = {}
        for number, one in enumerate(sockets[:started]):
            one.send(head_of(f"e{number}", body) + body)
        ended = 0
        while ended < wanted:
            for descriptor, _ in epoll.poll():
                one = found[descriptor]
                data = one.recv(65536)
                reads.setdefault(descriptor, []).append((perf_counter_ns(), data))
                if data.endswith(b"0\r\n\r\n"):
                    ended += 1
                    reads[descriptor] = []
                    if started < wanted:
                        one.send(head_of(f"e{started}", body) + body)
                        started += 1
        cpu_s = time.process_time() - cpu_s
    return {"cpu_s": cpu_s, "wall_s": (perf_counter_ns() - began) / 1e9, "times": {}}


def first_token(line: bytes) -> bool:
    """Return whether an SSE line bears a token; the client has to parse it to know."""
    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
        return False
    choices = json.loads(line[6:]).get("choices")
    return bool(choices and choices[0]["delta"].get("content"))


async def plain_aiohttp(url: str, tokens: int) -> tuple[Any, Times]:
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    )
    times: Times = {}

    async def one(index: int) -> None:
        name, first = f"a{index}", 0
        sent = perf_counter_ns()
        async with session.post(
            f"{url}/v1/chat/completions", json=body_of(tokens), headers={"X-Request-Id": name}
        ) as response:
            async for line in response.content:
                now = perf_counter_ns()
                if first_token(line) and not first:
                    first = now
        times[name] = (sent, first)

    return one, times


async def plain_httpx(url: str, tokens: int, *, transport: Any = None) -> tuple[Any, Times]:
    import httpx

    limits = httpx.Limits(max_connections=None)
    client = httpx.AsyncClient(timeout=600.0, limits=limits, transport=transport, trust_env=False)
    times: Times = {}

    async def one(index: int) -> None:
        name, first = f"h{index}", 0
        sent = perf_counter_ns()
        async with client.stream(
            "POST", f"{url}/v1/chat/completions", json=body_of(tokens), headers={"X-Request-Id": name}
        ) as response:
            async for line in response.aiter_lines():
                now = perf_counter_ns()
                if first_token(line.encode()) and not first:
                    first = now
        times[name] = (sent, first)

    return one, times


async def httpx_aiohttp(url: str, tokens: int) -> tuple[Any, Times]:
    from httpx_aiohttp import AiohttpTransport

    return await plain_httpx(url, tokens, transport=AiohttpTransport())


async def vllm(url: str, tokens: int) -> tuple[Any, Times]:
    import aiohttp
    from vllm.benchmarks.lib.endpoint_request_func import (
        RequestFuncInput,
        async_request_openai_chat_completions,
    )

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=None),
    )
    times: Times = {}

    async def one(index: int) -> None:
        name = f"v{index}"
        output = await async_request_openai_chat_completions(
            RequestFuncInput(
                prompt="Tell a story about a rack of cards in a cold room.", prompt_len=12, output_len=tokens,
                api_url=f"{url}/v1/chat/completions", model="reference", request_id=name,
            ),
            session,
        )  # fmt: skip
        if not output.success:
            raise RuntimeError(output.error)
        sent = round(output.start_time * 1e9)
        times[name] = (sent, sent + round(output.ttft * 1e9))

    return one, times


CLIENTS = {
    "floor": floor,
    "aiohttp": plain_aiohttp,
    "httpx": plain_httpx,
    "httpx-aiohttp": httpx_aiohttp,
    "vllm": vllm,
}


async def measure(name: str, url: str, concurrency: int, requests: int, tokens: int) -> dict[str, Any]:
    one, times = await CLIENTS[name](url, tokens)
    await slots(concurrency, concurrency, one)  # connections are up, code is warm
    times.clear()
    began, cpu_s = perf_counter_ns(), time.process_time()
    await slots(concurrency, requests, one)
    cpu_s = time.process_time() - cpu_s
    return {"cpu_s": cpu_s, "wall_s": (perf_counter_ns() - began) / 1e9, "times": times}


def main() -> None:
    name, url, *numbers = sys.argv[1:]
    if name == "epoll":
        print(json.dumps(bare_epoll(url, *(int(number) for number in numbers))))
        return
    try:
        import uvloop

        factory: Any = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(measure(name, url, *(int(number) for number in numbers)))))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
