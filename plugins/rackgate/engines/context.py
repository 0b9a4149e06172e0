"""How long a request may be: what endpoints themselves say in their list of models."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rackgate.nouns.endpoint import Endpoint

_LIMIT_S = 2.0
_WIDTH = 16


def context_of(endpoints: Sequence[Endpoint]) -> int | None:
    """Return the least `max_model_len` that endpoints tell for their models; None if none tells."""
    asked = [one for one in endpoints if one.protocol.startswith("openai")]
    if not asked:
        return None
    with ThreadPoolExecutor(max_workers=min(_WIDTH, len(asked))) as pool:
        told = [tokens for tokens in pool.map(_told, asked) if tokens is not None]
    return min(told, default=None)


def _told(endpoint: Endpoint) -> int | None:
    import httpx

    from rackgate.engines.client import http_client

    try:
        url = f"{endpoint.url}/v1/models"
        with http_client(url, endpoint.route, headers=endpoint.headers, timeout=_LIMIT_S) as client:
            answer = client.get(url)
        rows = answer.json()["data"] if answer.status_code == 200 else []
        told = [row.get("max_model_len") for row in rows if row.get("id") == endpoint.model]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
        return None
    return next((tokens for tokens in told if isinstance(tokens, int) and tokens > 0), None)
