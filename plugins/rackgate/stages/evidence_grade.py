"""Evidence grade: engines that turn out to be the simulator lower the grade of the run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackgate.nouns.endpoint import Endpoint
from rackgate.run.run import Run
from rackgate.stages.site import Site

SIMULATOR = "rackgate"
"""What the simulated engine and its gateway say at /v1/models as `owned_by`."""

_LIMIT_S = 5.0


def lower_grade_of_simulators(run: Run, site: Site) -> None:
    """Grade the run `simulated` if any engine, or the gateway, says that it is our simulator.

    An engine that does not answer or does not say changes nothing.
    """
    if run.log.grade == "simulated":
        return
    gateway = site.gateway()
    asked = [site.endpoint(engine) for engine in site.engines.values()] + ([gateway] if gateway else [])
    with ThreadPoolExecutor(max_workers=16) as pool:
        owners = pool.map(_owner, asked)
    found = [endpoint.entity for endpoint, owner in zip(asked, owners, strict=True) if owner == SIMULATOR]
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        text = f"{found[0]}{more} is the simulated engine: the evidence is worth no more than a simulation"
        run.log.lower_grade("simulated", text)
        run.notes.append(text)


def _owner(endpoint: Endpoint) -> str:
    """Return who owns the first model that the endpoint lists; empty if it does not tell."""
    import httpx

    from rackgate.engines.client import http_client

    try:
        with http_client(endpoint.url, endpoint.route, headers=endpoint.headers, timeout=_LIMIT_S) as client:
            answer = client.get(f"{endpoint.url.rstrip('/')}/v1/models")
            return _owned_by(answer.json())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return ""


def _owned_by(body: Any) -> str:
    entries = body.get("data") if isinstance(body, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return str(first.get("owned_by", "")) if isinstance(first, dict) else ""
