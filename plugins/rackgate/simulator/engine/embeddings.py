"""The simulated engine's embeddings: a vector that depends on the text only."""

from __future__ import annotations

import hashlib
import json

from rackgate.simulator.engine.chat import BadRequest
from rackgate.simulator.engine.words import count_tokens
from rackgate.simulator.http_server import json_bytes


def embedding_answer(body: bytes, model: str) -> tuple[bytes, int]:
    """Return the answer to a request, and the tokens of its text; raises `BadRequest`."""
    text = _text_of(body, model)
    tokens = count_tokens(text)
    vector = [byte / 255 - 0.5 for byte in hashlib.blake2b(text.encode(), digest_size=8).digest()]
    answer = {
        "object": "list",
        "model": model,
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json_bytes(answer), tokens


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
