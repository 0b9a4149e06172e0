"""Redfish client: HTTPS to a management controller, basic or session authentication, pinned or given CA."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackgate.nouns.measurement import Reason

_SESSIONS = "/redfish/v1/SessionService/Sessions"


class RedfishProblem(Exception):
    """The controller did not give what was asked; `reason` says why.

    `answered` says that it did speak, of this resource: others may well be had.
    """

    def __init__(self, reason: Reason, detail: str, *, answered: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.answered = answered


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishLogin:
    """The login and the trust of a Redfish client.

    `ca_file` is the authority that signed the controller's certificate; `pinned_file` is that very
    certificate, whatever name it bears. With neither, the system's authorities decide.
    """

    user: str
    password: str
    session: bool = True
    ca_file: Path | None = None
    pinned_file: Path | None = None

    def __repr__(self) -> str:
        return f"RedfishLogin(user={self.user!r}, session={self.session})"


class RedfishClient:
    """Reads resources; logs in at the first one, again when the session ran out, and off at the end."""

    def __init__(self, url: str, login: RedfishLogin, *, timeout_s: float = 5.0) -> None:
        import httpx

        self.url = url.rstrip("/")
        self._login = login
        self._session: str | None = None
        self._client = httpx.Client(
            timeout=timeout_s,
            trust_env=False,
            verify=_context(login),
            auth=None if login.session else httpx.BasicAuth(login.user, login.password),
            headers={"OData-Version": "4.0", "Accept": "application/json"},
        )

    def get(self, path: str) -> dict[str, Any]:
        """Return one resource; raises RedfishProblem."""
        if self._login.session and self._session is None:
            self._log_in()
        status, body = self._request("GET", path)
        if status == 401 and self._login.session:
            self._log_in()
            status, body = self._request("GET", path)
        if status in (401, 403):
            cure = "give this user a role that may read (ReadOnly)"
            raise RedfishProblem(Reason.NO_PERMISSION, f"{path}: {status}; {cure}", answered=True)
        if status == 404:
            raise RedfishProblem(Reason.UNSUPPORTED, f"the controller has no {path}", answered=True)
        if status >= 400:
            raise RedfishProblem(Reason.UNREACHABLE, f"{path} answered {status}", answered=True)
        return body

    def close(self) -> None:
        """End the session and the connection; safe to call twice."""
        session, self._session = self._session, None
        if session and not self._client.is_closed:
            with contextlib.suppress(RedfishProblem):  # else the session ends by itself
                self._request("DELETE", session)
        self._client.close()

    def _log_in(self) -> None:
        import httpx

        self._client.headers.pop("X-Auth-Token", None)
        credentials = {"UserName": self._login.user, "Password": self._login.password}
        try:
            answer = self._client.post(f"{self.url}{_SESSIONS}", json=credentials)
        except httpx.HTTPError as error:
            raise _unreachable(self.url, error) from error
        token = answer.headers.get("X-Auth-Token")
        if answer.status_code not in (200, 201) or not token:
            reason = Reason.NO_PERMISSION if answer.status_code in (400, 401, 403) else Reason.UNSUPPORTED
            raise RedfishProblem(reason, f"{self.url}: the login was answered {answer.status_code}")
        self._client.headers["X-Auth-Token"] = token
        where = answer.headers.get("Location") or ""
        self._session = where[where.find("/redfish/") :] if "/redfish/" in where else _SESSIONS

    def _request(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        import httpx

        try:
            answer = self._client.request(method, f"{self.url}{path}")
            body = answer.json() if method == "GET" and answer.status_code == 200 else {}
        except httpx.HTTPError as error:
            raise _unreachable(self.url, error) from error
        except ValueError as error:
            raise RedfishProblem(Reason.UNSUPPORTED, f"{path} is no JSON", answered=True) from error
        if not isinstance(body, dict):
            raise RedfishProblem(Reason.UNSUPPORTED, f"{path} is no Redfish resource", answered=True)
        return answer.status_code, body


def _unreachable(url: str, error: Exception) -> RedfishProblem:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return RedfishProblem(Reason.TIMEOUT, f"{url} did not answer in time")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        text = f"{url}: its certificate is not trusted; give `ca` or pin the certificate itself"
        return RedfishProblem(Reason.UNREACHABLE, text)
    return RedfishProblem(Reason.UNREACHABLE, f"{url}: {error or type(error).__name__}")


def _context(login: RedfishLogin) -> ssl.SSLContext:
    if login.pinned_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=str(login.pinned_file))
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is its own anchor
        return context
    return ssl.create_default_context(cafile=None if login.ca_file is None else str(login.ca_file))
