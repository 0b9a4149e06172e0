"""One look at an engine: which layer fails, if any. It serves if a token came out; all else is a hint."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rackgate.engines.client import http_client
from rackgate.engines.protocols.answer import Answer, Ending
from rackgate.engines.protocols.protocol import ChatRequest, protocol_named
from rackgate.nouns.route import DIRECT, Route
from rackgate.nouns.sample import Outcome

if TYPE_CHECKING:
    import httpx


_PROMPT = "Say hello."
_TOKENS = 8
_CONNECT_LIMIT_S = 5.0
_LIST_LIMIT_S = 10.0

_LISTING = {"triton": ("POST", "/v2/repository/index")}
_HEALTH = {"triton": "/v2/health/ready"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProbe:
    """What one look at an engine found.

    `layer_failed` is empty, `network`, `service` or `model`. `served_models` is None if the engine does
    not tell. `settled` means that waiting longer will not help: a wrong model name, a refused key.
    `refused` means that the host answered and nothing listens there.
    """

    connect_ms: float | None = None
    layer_failed: str = ""
    served_models: tuple[str, ...] | None = None
    first_token_ms: float | None = None
    output_tokens: int | None = None
    message: str = ""
    hint: str = ""
    settled: bool = False
    refused: bool = False

    @property
    def ok(self) -> bool:
        """True if a token came out."""
        return self.layer_failed == ""


def probe_engine(
    url: str,
    model: str,
    headers: Mapping[str, str],
    protocol: str = "openai",
    deadline_s: float = 30.0,
    *,
    route: Route = DIRECT,
) -> EngineProbe:
    """Look at the network, the service and the model in turn; the last look is one streamed request.

    Never raises: whatever goes wrong is in the result, with the layer that failed and what to try.
    """
    deadline = time.monotonic() + deadline_s
    connected = _connect(route.proxy or url, min(deadline_s, _CONNECT_LIMIT_S))
    if not connected.ok:
        return connected
    try:
        return _Dialogue(url, model, headers, protocol, deadline, route).look(connected)
    except Exception as error:  # noqa: BLE001  the boundary that this function promises
        return replace(
            connected,
            layer_failed="service",
            message=f"{url} cannot be asked: {type(error).__name__}: {error}",
            hint="check the address and the protocol of this engine in the target file",
        )


def _connect(url: str, limit_s: float) -> EngineProbe:
    """Open and close one TCP connection."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        return EngineProbe(layer_failed="network", message=f"{url} is no address: {error}", settled=True)
    start = time.perf_counter_ns()
    try:
        socket.create_connection((host, port), timeout=limit_s).close()
    except OSError as error:
        message, hint = _network_failure(error, host, port, limit_s)
        refused = isinstance(error, ConnectionRefusedError)
        return EngineProbe(layer_failed="network", message=message, hint=hint, refused=refused)
    return EngineProbe(connect_ms=(time.perf_counter_ns() - start) / 1e6)


def _network_failure(error: OSError, host: str, port: int, limit_s: float) -> tuple[str, str]:
    if isinstance(error, socket.gaierror):
        return (
            f"the name {host!r} does not resolve: {error.strerror}",
            "check the spelling, and this machine's DNS and hosts file",
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{host} refuses port {port}: nothing listens there",
            "start the engine, check its port, and that it binds an address that this machine reaches",
        )
    if isinstance(error, TimeoutError):
        return (
            f"no answer from {host} on port {port} within {limit_s:g} s",
            "check the route and the firewalls between this machine and the engine",
        )
    return (
        f"{host} port {port} cannot be reached: {error.strerror or error}",
        "check the route to that network from this machine",
    )


class _Dialogue:
    """One engine, asked for its models and then for a few tokens, before one deadline."""

    def __init__(
        self, url: str, model: str, headers: Mapping[str, str], protocol: str, deadline: float, route: Route
    ) -> None:
        self._url = url.rstrip("/")
        self._model = model
        self._headers = headers
        self._name = protocol
        self._deadline = deadline
        self._route = route

    def look(self, probe: EngineProbe) -> EngineProbe:
        import httpx

        headers = {**self._headers, "accept-encoding": "identity"}
        with http_client(self._url, self._route, headers=headers) as client:
            try:
                probe = replace(probe, served_models=self._served_models(client))
                return self._first_token(client, probe)
            except httpx.TimeoutException:
                return self._silent(client, probe)
            except httpx.TransportError as error:
                message, hint = _transport_failure(self._url, error)
                return replace(probe, layer_failed="service", message=message, hint=hint)

    def _left_s(self, most_s: float = float("inf")) -> float:
        return max(0.05, min(most_s, self._deadline - time.monotonic()))

    def _served_models(self, client: httpx.Client) -> tuple[str, ...] | None:
        method, path = _LISTING.get(protocol_named(self._name).dialect.family, ("GET", "/v1/models"))
        response = client.request(method, self._url + path, timeout=self._left_s(_LIST_LIMIT_S))
        if response.status_code != 200:
            return None
        try:
            body = response.json()
            entries = body["data"] if isinstance(body, dict) else body
            return tuple(str(entry.get("id", entry.get("name"))) for entry in entries)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def _first_token(self, client: httpx.Client, probe: EngineProbe) -> EngineProbe:
        protocol = protocol_named(self._name)
        body = protocol.body(ChatRequest(model=self._model, prompt=_PROMPT, max_tokens=_TOKENS))
        reader = protocol.reader()
        sent_ns = time.perf_counter_ns()
        with client.stream(
            "POST",
            self._url + protocol.path(self._model),
            content=body,
            headers={"content-type": "application/json", "accept": protocol.dialect.accept},
            timeout=self._left_s(),
        ) as response:
            if response.status_code != 200:
                return self._refused(client, probe, response.status_code, response.read())
            ending = Ending.COMPLETE
            for data in response.iter_raw():
                reader.feed(time.perf_counter_ns(), data)
                if time.monotonic() > self._deadline:  # keep-alives must not stretch it
                    ending = Ending.TIMEOUT
                    break
        answer = reader.close(time.perf_counter_ns(), ending)
        return self._judged(client, probe, answer, sent_ns)

    def _judged(self, client: httpx.Client, probe: EngineProbe, answer: Answer, sent_ns: int) -> EngineProbe:
        if answer.token_ns:
            probe = replace(
                probe,
                first_token_ms=(answer.token_ns[0] - sent_ns) / 1e6,
                output_tokens=answer.output_tokens,
            )
        if answer.outcome is Outcome.OK:
            return probe
        if answer.outcome is Outcome.TIMEOUT:
            return self._silent(client, probe)
        what = answer.error_message or answer.detail or answer.outcome.value
        if answer.outcome is Outcome.EMPTY:
            return replace(
                probe,
                layer_failed="model",
                message=f"{self._url} answered 200 for {self._model!r}, but no token came out: {what}",
                hint="see the engine's log: the model's output is lost or the model ends at once",
            )
        return replace(
            probe,
            layer_failed="service",
            message=f"{self._url} answered 200 and then failed ({answer.outcome.value}): {what}",
            hint="see the engine's log: it accepted the request and broke while it worked on it",
        )

    def _silent(self, client: httpx.Client, probe: EngineProbe) -> EngineProbe:
        return replace(
            probe,
            layer_failed="service",
            message=f"no token from {self._url} before the deadline{self._health(client)}",
            hint="the port is open and nothing comes: the engine still loads, or hangs; see its log",
        )

    def _health(self, client: httpx.Client) -> str:
        path = _HEALTH.get(protocol_named(self._name).dialect.family, "/health")
        try:
            status = client.get(self._url + path, timeout=1.0).status_code
        except Exception as error:  # noqa: BLE001  an addition to a message only
            return f" ({path}: {type(error).__name__})"
        return f" ({path} says {status})"

    def _refused(self, client: httpx.Client, probe: EngineProbe, status: int, body: bytes) -> EngineProbe:
        said = _error_text(body)
        refusal = f"{self._url} answered {status} for model {self._model!r}: {said}"
        if status in (401, 403):
            return replace(
                probe,
                layer_failed="service",
                message=refusal,
                hint="the key is missing or wrong: name its variable in api_key_env and export it",
                settled=True,
            )
        if _is_about_model(status, said, self._model, probe.served_models):
            served = ", ".join(probe.served_models or ()) or "none that it tells"
            return replace(
                probe,
                layer_failed="model",
                message=f"{refusal}; it serves {served}",
                hint="set `model` in the target file to a served name, or start the engine with this one",
                settled=bool(probe.served_models),
            )
        hint = "see the engine's log"
        if status == 404:
            hint = "the model is there but the path is not: check `protocol` and the path in `url`"
        elif 300 <= status < 400:
            hint = "it points elsewhere: give the final address in `url`"
        elif status == 429:
            hint = "it refuses more requests at the moment: end other load, or raise its limit"
        message = refusal + (self._health(client) if status >= 500 else "")
        return replace(probe, layer_failed="service", message=message, hint=hint)


def _is_about_model(status: int, said: str, model: str, served: tuple[str, ...] | None) -> bool:
    if status == 404:
        return model not in (served or ())
    named = status in (400, 422) and "model" in said.lower()
    return named and any(word in said.lower() for word in ("not exist", "not found", "unknown", "no such"))


def _transport_failure(url: str, error: httpx.TransportError) -> tuple[str, str]:
    if "SSL" in str(error) or "certificate" in str(error):
        return (
            f"{url}: no secure connection: {error}",
            "check the certificate, its authority (`ca` of [engine.route]) and whether it is https at all",
        )
    said = str(error) or type(error).__name__
    return (
        f"{url}: the port is open, but what answers is no HTTP: {said}",
        "check that this is the engine's HTTP port, and see its log for a crash",
    )


def _error_text(body: bytes) -> str:
    """Return what an error body says, in one line of at most 300 characters."""
    text = body.decode("utf-8", "replace")
    try:
        parsed = json.loads(text)
        if isinstance(parsed, dict):
            error = parsed.get("error", parsed)
            text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:300] or "(empty body)"
