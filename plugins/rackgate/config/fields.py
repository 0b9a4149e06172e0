"""Base class and field types of the tables: addresses, names, digests, ranges."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Table(BaseModel):
    """A TOML table: unknown keys are errors and types are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def http_url(value: str) -> str:
    """Return the address without a trailing slash; raises `ValueError` for a bad one or a secret in it."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://HOST[:PORT] or https://HOST[:PORT]")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or a password: name the variable in api_key_env")
    return value.rstrip("/")


def proxy_url(value: str) -> str:
    """Return the address of a forward proxy; raises `ValueError` unless it is http://HOST:PORT."""
    if not value.startswith("http://"):
        raise ValueError("must be http://HOST:PORT: a proxy is spoken with in the clear")
    return http_url(value)


def pci_address(value: str) -> str:
    """Return a PCI address in canonical form; raises `ValueError` for another text."""
    from rackgate.hosts.pci import canonical_pci

    address = canonical_pci(value)
    if address is None:
        raise ValueError("must be a PCI address, such as 0000:1b:00.0")
    return address


def host_port(value: str) -> str:
    """Return the address; raises `ValueError` unless it is HOST:PORT."""
    from rackgate.loadgen.remote.relay import address_of

    address_of(value)
    return value


def protocol_name(value: str) -> str:
    """Return the name of a protocol; raises `ValueError` for an unknown one."""
    from rackgate.engines.protocols.protocol import protocol_named

    protocol_named(value)
    return value


Url = Annotated[str, AfterValidator(http_url)]
ProxyUrl = Annotated[str, AfterValidator(proxy_url)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
ProtocolName = Annotated[str, AfterValidator(protocol_name)]
Pci = Annotated[str, AfterValidator(pci_address)]
HostPort = Annotated[str, AfterValidator(host_port)]
MigLayout = Annotated[int, Field(ge=0)] | list[Annotated[str, Field(min_length=1)]]
Metrics = Annotated[str, Field(pattern=r"^(|/\S*|:\d+/\S*|https?://\S+)$")]
Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
