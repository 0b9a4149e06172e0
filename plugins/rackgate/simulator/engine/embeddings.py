"""The simulated engine's embeddings: a vector that depends on the text only."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from rackgate.simulator.engine.chat import BadRequest
from rackgate.simulator.engine.words import count_tokens
from rackgate.simulator.http_server import Exchange, json_bytes, openai_error

if TYPE_CHECKING:
    from rackgate.simulator.engine.server import EngineServer


def embed(server: EngineServer, exchange: Exchange) -> None:
    """Answer with the vector of a text when its tokens have been read."""
    try:
        text = _text_of(exchange.body, server.model)
    except BadRequest as problem:
        status, kind = (404, "NotFoundError") if problem.param == "model" else (400, "BadRequestError")
        body = openai_error(status, str(problem), kind, problem.param)
        exchange.respond(status, body, headers=server.headers(exchange))
        return
    tokens = count_tokens(text)
    server.metrics.prompt_tokens += tokens
    vector = [byte / 255 - 0.5 for byte in hashlib.blake2b(text.encode(), digest_size=8).digest()]
    body = json_bytes(
        {
            "object": "list",
            "model": server.model,
            "data": [{"object": "embedding", "index": 0, "embedding": vector}],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )

    def answer() -> None:
        if not exchange.finished:
            exchange.respond(200, body, headers=server.headers(exchange))

    knobs = server.knobs
    server.loop.call_later(tokens / knobs.prefill_tokens_per_s * knobs.prefill_slowdown, answer)


def _text_of(body: bytes, model: str) -> str:
    """Return the text of a request; raises BadRequest."""
    try:
        data = json.loads(body)
    except ValueError as problem:
        raise BadRequest(f"the body is not JSON: {problem}") from None
    if not isinstance(data, dict) or not isinstance(data.get("input"), str):
        raise BadRequest("'input' must be a string", "input")
    if data.get("model") != model:
        raise BadRequest(f"The model `{data.get('model')}` does not exist.", "model")
    return str(data["input"])
