"""Redaction of texts: secrets masked, size bounded, control characters made visible."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol
from urllib.parse import quote, quote_plus

REDACTED: Final = "[redacted]"
"""The mark in place of a secret."""

LIMIT_BYTES: Final = 262_144
"""The most bytes of one attached text (256 KiB)."""

_SHORTEST_SECRET = 6
_CHUNK_BYTES = 65_536
_MARGIN_BYTES = 8_192

_SECRET_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:_|$)", re.IGNORECASE
)
_SECRET_PLACE = re.compile(r"_(?:PATH|FILE|DIR|HOME|URL|ENV|NAME)$", re.IGNORECASE)

# Every repetition is bounded, so that a line of megabytes costs linear time.
_QUOTE = r"(?:\\{0,4}[\"'])"
_ASSIGN = rf"{_QUOTE}?\s{{0,8}}[:=]\s{{0,8}}"
_VALUE = rf"(?:(?P<quote>{_QUOTE})(?P<quoted>.{{1,4096}}?)(?P=quote)|[^\s\"'\\,;&<>(){{}}\[\]]{{1,4096}})"
_NAMES = (
    r"[\w.-]{0,64}(?:password|passwd|passphrase|secret|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|(?:auth|access|api|refresh|bearer|session|id|hf|csrf)[-_]?token)"
)
_PATTERNS: Final = (
    (
        re.compile(
            rf"\b((?:proxy-)?authorization{_ASSIGN}{_QUOTE}?)(?:\[redacted\]|[^\"'\\\r\n,}}\]]){{1,8192}}",
            re.IGNORECASE,
        ),
        rf"\g<1>{REDACTED}",
    ),
    (re.compile(r"\b([a-z][a-z0-9+.-]{0,20}://)[^\s/\"'<>]{1,1024}@", re.IGNORECASE), rf"\g<1>{REDACTED}@"),
    (re.compile(r"\b(Bearer)\s{1,8}[\w.~+/=-]{6,8192}", re.IGNORECASE), rf"\g<1> {REDACTED}"),
    (
        re.compile(r"\b(Basic)\s{1,8}(?=[A-Za-z+/]{0,256}[0-9=])[A-Za-z0-9+/=]{8,8192}", re.IGNORECASE),
        rf"\g<1> {REDACTED}",
    ),
    (
        re.compile(
            r"\b(?:sk-|hf_|nvapi-|ghp_|github_pat_|glpat-|xox[abprs]-)[\w-]{8,512}|\bAKIA[0-9A-Z]{16}\b"
            r"|\beyJ[\w-]{8,4096}\.[\w-]{4,8192}\.[\w-]{4,8192}"
        ),
        REDACTED,
    ),
)
_NAMED_VALUE: Final = re.compile(rf"(?P<name>(?<![\w.-]){_NAMES}{_ASSIGN}){_VALUE}", re.IGNORECASE)
_TOKEN_VALUE: Final = re.compile(
    rf"(?P<name>(?<![\w.-])(?:x-)?token{_ASSIGN}){_QUOTE}?(?![\d.]{{1,64}}\b)[\w.~+/=-]{{6,4096}}",
    re.IGNORECASE,
)
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | str: ...


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the characters that stand for the secret wherever it begins inside an encoded text."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret).decode()
        certain = encoded[math.ceil(offset * 8 / 6) : (offset + len(secret)) * 8 // 6]
        if len(certain) >= _SHORTEST_SECRET:
            yield certain
            yield certain.replace("+", "-").replace("/", "_")


def _forms(secret: str) -> Iterator[str]:
    """Yield the texts in which one secret may be written."""
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield text
        yield repr(text)[1:-1]
        yield html.escape(text)
    for escaped in (quote(secret, errors="replace"), quote(secret, safe="", errors="replace")):
        yield escaped
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), escaped)
    yield quote_plus(secret, errors="replace")
    yield from _base64_forms(secret.encode("utf-8", "replace"))


class Redactor:
    """Takes secrets out of text, by value and by pattern; the rest of the text stays readable.

    Values shorter than six characters are not looked for: they would hit ordinary words.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def redact(self, text: str) -> str:
        """Return the text with `[redacted]` in place of each secret; hosts of URLs are kept."""
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = _NAMED_VALUE.sub(_without_value, text)
        return _TOKEN_VALUE.sub(rf"\g<name>{REDACTED}", text)


def _without_value(match: re.Match[str]) -> str:
    mark = match["quote"] or ""
    return f"{match['name']}{mark}{REDACTED}{mark}"


def _chunks(source: str | bytes | _Readable) -> Iterator[bytes]:
    if isinstance(source, str):
        source = io.StringIO(source, newline="")
    stream: _Readable = io.BytesIO(source) if isinstance(source, bytes) else source
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk


def _ends(source: str | bytes | _Readable, keep_bytes: int) -> tuple[bytes, bytes, int]:
    """Return the first and the last bytes, without overlap, and the total; holds no more than that."""
    head, tail, total = bytearray(), bytearray(), 0
    for chunk in _chunks(source):
        total += len(chunk)
        room = max(0, keep_bytes - len(head))
        head += chunk[:room]
        tail += chunk[room:]
        del tail[: max(0, len(tail) - keep_bytes)]
    return bytes(head), bytes(tail), total


def _cut(text: str, size_bytes: int, *, from_end: bool) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size_bytes:
        return text
    part = raw[len(raw) - size_bytes :] if from_end else raw[:size_bytes]
    return part.decode("utf-8", "ignore")


def _whole_characters(raw: bytes, *, from_end: bool) -> bytes:
    """Drop the bytes of a character that was cut at the inner edge."""
    if from_end:
        start = 0
        while start < min(3, len(raw)) and raw[start] & 0xC0 == 0x80:
            start += 1
        return raw[start:]
    for back in range(1, min(4, len(raw)) + 1):
        lead = raw[-back]
        if lead & 0xC0 == 0x80:
            continue
        width = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return raw if back >= width else raw[:-back]
    return raw


def bounded(
    source: str | bytes | _Readable, limit_bytes: int = LIMIT_BYTES, redactor: Redactor | None = None
) -> str:
    """Return head and tail of a text, of at most `limit_bytes` of UTF-8, and say how much was left out.

    A stream is read in pieces and never held whole. Bytes that are not UTF-8 become U+FFFD. With a
    `redactor`, secrets are taken out before the cut, so that none is left in halves.
    """
    margin = _MARGIN_BYTES if redactor is not None else 0
    head_raw, tail_raw, total = _ends(source, limit_bytes // 2 + margin)
    if not len(tail_raw) or len(head_raw) + len(tail_raw) == total <= limit_bytes:
        whole = (head_raw + tail_raw).decode("utf-8", "replace")
        whole = redactor.redact(whole) if redactor is not None else whole
        if len(whole.encode()) <= limit_bytes:
            return whole
        head, tail, margin = whole, whole, 0
    else:
        head = _whole_characters(head_raw, from_end=False).decode("utf-8", "replace")
        tail = _whole_characters(tail_raw, from_end=True).decode("utf-8", "replace")
        if redactor is not None:
            # What stands within the margin of the cut may be half a secret; it is dropped.
            head = redactor.redact(head)[: -margin // 4]
            tail = redactor.redact(tail)[margin // 4 :]
    half = max(0, (limit_bytes - 64) // 2)
    head, tail = _cut(head, half, from_end=False), _cut(tail, half, from_end=True)
    left_out = max(0, total - len(head.encode("utf-8")) - len(tail.encode("utf-8")))
    return f"{head}\n[... {left_out:,} bytes left out ...]\n{tail}"


def printable(text: str) -> str:
    r"""Return the text with what XML 1.0 cannot carry, or the eye cannot see, written as an escape.

    Newlines and tabs stay; a carriage return before a newline goes; other control characters, unpaired
    surrogates, U+FFFE, U+FFFF and the marks that reverse reading direction become `\x1b` or `\u202e`.
    """
    return _UNPRINTABLE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables whose names look like secrets (KEY, TOKEN, SECRET, PASSWORD).

    Names that say where a secret lies (`..._FILE`, `..._PATH`) are left out; sorted, each value once.
    """
    values = {value for name, value in environ.items() if _is_secret(name)}
    return tuple(sorted(value for value in values if len(value) >= _SHORTEST_SECRET))


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _SECRET_PLACE.search(name)
