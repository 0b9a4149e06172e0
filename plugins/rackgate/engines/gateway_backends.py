"""How the words of a gateway's table name the engines behind it, and how their addresses get in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast
from urllib.parse import urlsplit

EACH = "each"
"""Stands for every engine that came up: what names it is repeated for each of them."""

_NAMED = re.compile(r"\{([A-Za-z0-9][A-Za-z0-9_.-]*)\.(name|host|port|url)\}")
_PORTS = {"http": 80, "https": 443}


def named_backends(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names that stand in braces, `EACH` among them, each once."""
    found = [match[1] for text in _texts(settings) for match in _NAMED.finditer(text)]
    return tuple(dict.fromkeys(found))


def with_backends(settings: Mapping[str, object], urls: Mapping[str, str | None]) -> dict[str, object]:
    """Return the table with `{NAME.name}`, `.host`, `.port` and `.url` of the engines filled in.

    `urls` says where each declared engine answers, None where it did not come up. A line of `files`, a
    word of `command` or a value of `env` that names `EACH` is repeated for every engine that answers
    (values are joined by commas); one that names an engine that does not answer is left out.
    """
    filled = dict(settings)
    if "files" in settings:
        files = cast("Mapping[str, str]", settings["files"]).items()
        filled["files"] = {name: _lines(content, urls) for name, content in files}
    if "command" in settings:
        words = cast("list[str]", settings["command"])
        filled["command"] = [one for word in words for one in _repeated(word, urls)]
    if "env" in settings:
        values = cast("Mapping[str, str]", settings["env"]).items()
        joined = {name: list(_repeated(value, urls)) for name, value in values}
        filled["env"] = {name: ",".join(given) for name, given in joined.items() if given}
    return filled


def _texts(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield what may name an engine; a value that is no text is the launcher's to refuse."""
    for value in (settings.get("files"), settings.get("command"), settings.get("env")):
        words = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        yield from (word for word in words if isinstance(word, str))


def _lines(text: str, urls: Mapping[str, str | None]) -> str:
    return "\n".join(one for line in text.split("\n") for one in _repeated(line, urls))


def _repeated(text: str, urls: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what stands in place of a text: it itself filled in, one for each engine, or nothing."""
    names = {match[1] for match in _NAMED.finditer(text)}
    if any(urls.get(name, "") is None for name in names):
        return
    known = {name: url for name, url in urls.items() if url}
    for name, url in known.items() if EACH in names else (("", ""),):
        values = dict(_values(EACH, name, url)) if name else {}
        for engine, its_url in known.items():
            values |= _values(engine, engine, its_url)
        yield _NAMED.sub(partial(_value_of, values), text)


def _value_of(values: Mapping[str, str], match: re.Match[str]) -> str:
    return values.get(match[0], match[0])


def _values(key: str, name: str, url: str) -> dict[str, str]:
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme, 80)
    facts = {"name": name, "host": parts.hostname or "", "port": str(port), "url": url}
    return {f"{{{key}.{fact}}}": value for fact, value in facts.items()}
