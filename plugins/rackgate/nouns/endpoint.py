"""An endpoint: the address to which a load sends its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rackgate.nouns.route import DIRECT, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address of requests: `url` is scheme://host:port with an optional prefix, without /v1.

    `served_by_header` names the response header that says who answered; `served_by` maps its values, and
    those of `system_fingerprint`, to entities. `engine` is the entity that answers if neither says: the
    called engine, None behind a gateway. `headers` may carry a key and is never shown.
    """

    entity: str
    url: str
    model: str
    protocol: str = "openai"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    served_by_header: str | None = None
    served_by: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None
    route: Route = DIRECT
