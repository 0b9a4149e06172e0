"""HTTP server of a simulated engine: OpenAI's API over the scheduler."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from dataclasses import replace

from rackgate.simulator.engine.metrics_page import EngineMetrics
from rackgate.simulator.engine.model import answer_to
from rackgate.simulator.engine.openai_api import (
    DONE,
    AnswerFrames,
    BadRequest,
    ChatRequest,
    embedding_answer,
    parse_request,
)
from rackgate.simulator.engine.scheduler import Scheduler
from rackgate.simulator.http_server import PROMETHEUS_TEXT, Exchange, json_bytes, openai_error
from rackgate.simulator.knobs import CardKnobs

_EVENTS = "text/event-stream; charset=utf-8"
_SHAPED_TOKENS = 8  # length of tool calls and of JSON of a schema


class EngineServer:
    """Answers the requests of one engine, which the header `x-served-by` names."""

    def __init__(
        self,
        *,
        entity: str,
        model: str,
        seed: int,
        knobs: CardKnobs,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.entity = entity
        self.model = knobs.served_model or model
        self.seed = seed
        self.knobs = knobs
        self.scheduler = scheduler
        self.loop = loop
        self.metrics = EngineMetrics(model=self.model)
        self._numbers = itertools.count(1)
        self._answered: set[str] = set()

    def handle(self, exchange: Exchange) -> None:
        """Answer one request at once or token by token."""
        route = (exchange.method, exchange.path)
        if route == ("POST", "/v1/chat/completions"):
            self._generate(exchange, chat=True)
        elif route == ("POST", "/v1/completions"):
            self._generate(exchange, chat=False)
        elif route == ("POST", "/v1/embeddings"):
            self._embed(exchange)
        elif route == ("GET", "/health"):
            exchange.respond(200, b"")
        elif route == ("GET", "/v1/models"):
            self._models(exchange)
        elif route == ("GET", "/metrics") and self.knobs.metrics_listed:
            exchange.respond(200, self._metrics(), content_type=PROMETHEUS_TEXT)
        else:
            exchange.respond(404, json_bytes({"detail": "Not Found"}))

    def is_cached(self, prompt: str) -> bool:
        """Return whether the cache of answers has this prompt, and add the prompt to it."""
        if not self.knobs.answers_cached:
            return False
        cached = prompt in self._answered
        self._answered.add(prompt)
        return cached

    def headers(self, exchange: Exchange) -> dict[str, str]:
        """Return the headers of every answer to this request."""
        headers = {"x-served-by": self.entity}
        if "x-request-id" in exchange.headers:
            headers["x-request-id"] = exchange.headers["x-request-id"]
        return headers

    def _metrics(self) -> bytes:
        scheduler = self.scheduler
        return self.metrics.render(
            running=scheduler.running,
            waiting=scheduler.waiting,
            kv_usage=scheduler.kv_tokens / self.knobs.kv_capacity_tokens,
        )

    def _models(self, exchange: Exchange) -> None:
        if self.knobs.models_broken:
            exchange.respond(500, b"\x00\xff<html>Internal", content_type="text/html")
            return
        card = {"id": self.model, "object": "model", "created": int(time.time()), "owned_by": "rackgate"}
        card["max_model_len"] = self.knobs.max_model_len
        exchange.respond(200, json_bytes({"object": "list", "data": [card]}), headers=self.headers(exchange))

    def _embed(self, exchange: Exchange) -> None:
        """Answer with the vector of a text after the time that its prefill takes."""
        try:
            body, tokens = embedding_answer(exchange.body, self.model)
        except BadRequest as problem:
            self._refuse(exchange, problem)
            return
        self.metrics.prompt_tokens += tokens

        def answer() -> None:
            if not exchange.finished:
                exchange.respond(200, body, headers=self.headers(exchange))

        self.loop.call_later(tokens / self.knobs.prefill_tokens_per_s * self.knobs.prefill_slowdown, answer)

    def _refuse(self, exchange: Exchange, problem: BadRequest) -> None:
        status, kind = (404, "NotFoundError") if problem.param == "model" else (400, "BadRequestError")
        if exchange.path != "/v1/embeddings" and "crashing_parser" in self.knobs.api_defects:
            status, kind = 500, "InternalServerError"
        body = openai_error(status, str(problem), kind, problem.param)
        exchange.respond(status, body, headers=self.headers(exchange))

    def _generate(self, exchange: Exchange, *, chat: bool) -> None:
        if not chat and "no_completions" in self.knobs.api_defects:
            exchange.respond(404, json_bytes({"detail": "Not Found"}))
            return
        try:
            request = self._supported(parse_request(exchange.body, chat=chat))
            self._check(request)
        except BadRequest as problem:
            self._refuse(exchange, problem)
            return
        if self.knobs.hung:
            return
        number = next(self._numbers)
        generation = _Generation(self, exchange, request, number)
        exchange.on_disconnect = generation.abandon
        if self.knobs.role_at_once and request.stream:
            generation.send_role()
        delay_ms = self.knobs.first_token_delay_ms + self.knobs.front_delay_ms
        crowded = self.scheduler.running >= self.knobs.slow_from_running
        if self.knobs.slow_every and number % self.knobs.slow_every == 0 and crowded:
            delay_ms += self.knobs.slow_extra_ms
        if number <= self.knobs.cold_requests:
            delay_ms += self.knobs.cold_extra_ms
        if delay_ms:
            self.loop.call_later(delay_ms / 1e3, generation.begin)
        else:
            generation.begin()

    def _supported(self, request: ChatRequest) -> ChatRequest:
        """Return the request without the features that this engine ignores."""
        if "shapeless" in self.knobs.api_defects:
            return replace(request, schema=None, tool=None)
        return request

    def _check(self, request: ChatRequest) -> None:
        if request.model != self.model:
            raise BadRequest(f"The model `{request.model}` does not exist.", "model")
        total, limit = request.prompt_tokens + (request.max_tokens or 1), self.knobs.max_model_len
        if total > limit:
            raise BadRequest(
                f"This model's maximum context length is {limit} tokens; the request asks for {total}.",
                "max_tokens",
            )


class _Generation:
    """A request that generates tokens (a `TokenSequence` of the scheduler)."""

    def __init__(self, server: EngineServer, exchange: Exchange, request: ChatRequest, number: int) -> None:
        self._server = server
        self._exchange = exchange
        self._request = request
        self._number = number
        self._arrived_s = server.loop.time() + server.knobs.front_delay_ms / 1e3
        self._answer = answer_to(request.prompt, server.model, server.seed)
        kind = "chatcmpl" if request.chat else "cmpl"
        self._frames = AnswerFrames(request, f"{kind}-{uuid.uuid4().hex}")
        self._held: list[bytes] = []
        self._produced = 0
        self._submitted = False
        self.prompt_tokens = request.prompt_tokens
        self._cached = round(request.prompt_tokens * server.knobs.prefix_cached_share)
        self.prefill_left = float(request.prompt_tokens - self._cached)
        self.max_tokens, self.reason = self._length()
        self._failure = self._planned_failure()

    def _length(self) -> tuple[int, str]:
        request, natural = self._request, self._answer.natural_tokens
        if request.schema is not None or request.tool is not None:
            natural = min(natural, _SHAPED_TOKENS)
        if request.max_tokens is not None and (request.ignore_eos or request.max_tokens <= natural):
            return request.max_tokens, "length"
        return natural, "stop"

    def _planned_failure(self) -> str:
        """Return `error`, `cut` or `unended` for a request that fails half-way, else nothing."""
        knobs, number = self._server.knobs, self._number
        if _is_chosen(number, knobs.error_share, 0.0):
            return "error"
        if knobs.survivor_error_share and self._server.scheduler.another_is_down:
            return "error" if _is_chosen(number, knobs.survivor_error_share, 0.0) else ""
        if _is_chosen(number, knobs.truncate_share, 0.5):
            return "cut"
        if _is_chosen(number, knobs.unended_share, 0.25):
            return "unended"
        return ""

    def send_role(self) -> None:
        """Begin the stream before its first token."""
        self._start(self._frames.role())

    def begin(self) -> None:
        """Submit the sequence to the scheduler unless its client has disconnected."""
        if not self._exchange.finished:
            if self._server.is_cached(self._request.prompt):
                self._replay()
                return
            self._submitted = True
            self._server.metrics.prompt_tokens += self.prompt_tokens
            self._server.metrics.cached_tokens += self._cached
            self._server.scheduler.submit(self)

    def _replay(self) -> None:
        """Stream the cached answer, a token every millisecond."""
        if not self.produce():
            self._server.loop.call_later(0.001, self._replay)

    def abandon(self) -> None:
        """Free the place of a sequence whose client has disconnected."""
        if self._submitted:
            self._server.metrics.finished["abort"] += 1
            self._server.scheduler.cancel(self)

    def produce(self) -> bool:
        """Emit one token; return True after the last token."""
        if self._exchange.finished:
            return True
        if self._produced == 0:
            self._server.metrics.count_first_token(self._server.loop.time() - self._arrived_s)
            if self._server.knobs.empty_output:
                self._produced = self.max_tokens if self._server.knobs.empty_counted else 0
                return self._finish(b"", "stop")
        self._produced += 1
        self._server.metrics.generation_tokens += 1
        word = self._answer.next_word()
        token = self._frames.token(word) if self._request.stream else word.encode()
        if self._failure and self._produced >= max(1, self.max_tokens // 2):
            return self._fail(token)
        if self._produced >= self.max_tokens:
            return self._finish(token, self.reason)
        self._emit(token)
        return False

    def _emit(self, data: bytes, *, last: bool = False) -> None:
        if not self._request.stream:
            self._held.append(data)
            return
        if not self._exchange.started and not self._held:
            data = self._frames.role() + data
        if self._server.knobs.burst:
            self._held.append(data)
            if not last:
                return
            data = b"".join(self._held)
        if self._exchange.started:
            self._exchange.send(data)
        else:
            self._start(data)

    def _start(self, data: bytes) -> None:
        headers = {"content-type": _EVENTS, **self._server.headers(self._exchange)}
        self._exchange.start(200, headers, first=data)

    def _finish(self, token: bytes, reason: str) -> bool:
        self._server.metrics.finished[reason] += 1
        if not self._request.stream:
            text = b"".join((*self._held, token)).decode()
            count = 0 if "uncounted" in self._server.knobs.api_defects else self._produced
            body = self._frames.whole(text, reason, count)
            self._exchange.respond(200, body, headers=self._server.headers(self._exchange))
            return True
        usage = self._frames.usage(self._produced) if self._request.include_usage else b""
        self._emit(token + self._frames.finish(reason) + usage + DONE, last=True)
        self._exchange.end()
        return True

    def _fail(self, token: bytes) -> bool:
        message = "EngineCore encountered an issue."
        if not self._request.stream:
            self._exchange.respond(500, openai_error(500, message, "InternalServerError"))
        elif self._failure == "error":
            self._emit(token + self._frames.error(message) + DONE, last=True)
            self._exchange.end()
        else:
            self._emit(token, last=True)
            if self._failure == "unended":
                self._exchange.end()
            else:
                self._exchange.cut()
        return True


def _is_chosen(number: int, share: float, phase: float) -> bool:
    """Return True for `share` of all numbers, evenly spread; different phases choose different numbers."""
    return int(number * share + phase) > int((number - 1) * share + phase)
