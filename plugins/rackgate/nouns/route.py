"""How a server is reached, by the load path and by ordinary calls alike: trust, identity, proxy, headers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The route to an engine or a gateway. Nothing of it is ever taken from the environment.

    `ca_file` holds the authorities that may have signed the server's certificate, in place of the system's
    own; `certificate_file` and `key_file` are what we show. `proxy` is the http:// address of a forward
    proxy: it is part of what is measured. `headers` are sent with every request, and are no secrets.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    proxy: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with it: files that cannot be read or do not belong together; empty if nothing."""
        found = [
            f"headers: {name!r} holds a line end"
            for name, value in self.headers.items()
            if any(character in f"{name}{value}" for character in "\r\n\0")
        ]
        if self.key_file is not None and self.certificate_file is None:
            found.append("key: without a certificate it shows nothing")
        try:
            tls_of(self)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            files = (self.ca_file, self.certificate_file, self.key_file)
            named = ", ".join(name for name in files if name)
            found.append(f"{named}: {getattr(error, 'strerror', None) or error}")
        return tuple(found)


DIRECT = Route()
"""The system's authorities, no certificate of ours, no proxy."""


def tls_of(route: Route) -> ssl.SSLContext:
    """Return the context of both paths; it verifies, always. Raises `OSError` for a file that is not good."""
    return _tls(route.ca_file, route.certificate_file, route.key_file)


@lru_cache(maxsize=64)
def _tls(ca_file: str | None, certificate_file: str | None, key_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if certificate_file is not None:
        context.load_cert_chain(certificate_file, key_file)
    return context
