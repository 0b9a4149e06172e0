"""What the catalogue adds to a launcher's table, and how `{port}` and its like are filled in."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from rackgate.engines.catalogue import OWN_KIND, CatalogueEntry, catalogue, kind_of
from rackgate.engines.launchers.settings import (
    NUMBER,
    PORT,
    SHARE,
    TABLE,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    WHOLE,
    Key,
    text,
    text_table,
    texts,
)
from rackgate.nouns.target import EngineSpec

ENGINE_KEYS = {
    "engine": Key(kind=TEXT),
    OWN_KIND: Key(kind=TABLE),
    "model_path": Key(kind=TEXT),
    "tensor_parallel": Key(kind=WHOLE),
    "context_tokens": Key(kind=WHOLE),
    "memory_utilisation": Key(kind=SHARE),
    "extra_args": Key(kind=TEXTS),
    "command": Key(kind=TEXTS),
    "env": Key(kind=TEXT_TABLE),
    "port": Key(kind=PORT),
    "ready_timeout_s": Key(kind=NUMBER),
    "stop_timeout_s": Key(kind=NUMBER),
}
"""The keys that every launcher has which starts engines."""

IMAGE_KEYS = {
    "image": Key(kind=TEXT, required=True),
    "entrypoint": Key(kind=TEXTS),
    "pull": Key(kind=TEXT, one_of=("never", "missing", "always")),
    "shm_size": Key(kind=TEXT),
    "memory": Key(kind=TEXT),
}
"""The keys that every launcher has which starts an image."""

_OPTIONS = ("tensor_parallel", "context_tokens", "memory_utilisation")


def engine_problems(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with the name of the catalogue engine."""
    name = settings.get("engine")
    if not isinstance(name, str) or kind_of(settings) is not None:
        return []
    near = difflib.get_close_matches(name, catalogue(), n=1, cutoff=0.5)
    return [
        f"no engine {name!r}; "
        + (f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(catalogue())}")
    ]


def with_defaults(settings: Mapping[str, object], *, in_container: bool, cards: int = 0) -> dict[str, object]:
    """Return the table with what the catalogue knows of its engine; what the table says itself wins.

    `in_container` is for launchers that start an image, whose entry point the command follows.
    """
    entry = kind_of(settings)
    if entry is None:
        return dict(settings)
    words = entry.arguments if in_container else entry.command
    if "command" in settings:
        words = texts(settings, "command")
    else:
        for option, option_words in entry.options.items():
            if _value(settings, option, cards):
                words += option_words
    filled: dict[str, object] = {"ready_timeout_s": entry.ready_timeout_s}
    if words:
        filled["command"] = [*words, *texts(settings, "extra_args")]
    if in_container:
        filled |= _container_defaults(entry, settings)
    own = {key: value for key, value in settings.items() if key != "command"}
    return {**filled, **own, "env": _environment(entry, settings, cards)}


def _container_defaults(entry: CatalogueEntry, settings: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {"port": entry.port}
    if entry.image:
        found["image"] = entry.image
    if entry.ipc and "shm_size" not in settings:
        found["ipc"] = entry.ipc
    if entry.shm_size and "ipc" not in settings:
        found["shm_size"] = entry.shm_size
    if entry.ulimits:
        found["ulimits"] = dict(entry.ulimits)
    return found


def _environment(entry: CatalogueEntry, settings: Mapping[str, object], cards: int) -> dict[str, str]:
    """Return the variables whose value is known; a variable of an option without a value is left out."""
    found = {}
    for name, value in entry.environment.items():
        wanted = [option for option in _OPTIONS if f"{{{option}}}" in value]
        if all(_value(settings, option, cards) for option in wanted):
            found[name] = value
    return found | text_table(settings, "env")


def _value(settings: Mapping[str, object], option: str, cards: int) -> str:
    """Return an option's value as text; the tensor parallel size defaults to the number of cards."""
    if option in settings:
        return str(settings[option])
    return str(cards) if option == "tensor_parallel" and cards > 1 else ""


def placeholders(spec: EngineSpec, host: str, port: int) -> dict[str, str]:
    """Return what `{host}`, `{port}`, `{model}`, `{name}`, `{model_path}` and the options stand for."""
    values = {option: _value(spec.settings, option, len(spec.cards)) for option in _OPTIONS}
    path = text(spec.settings, "model_path", spec.model) or spec.model
    return {
        **{option: value for option, value in values.items() if value},
        "port": str(port),
        "host": host,
        "model": spec.model,
        "name": spec.name,
        "model_path": path,
    }


def filled_in(words: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Return the words with `{port}`, `{host}`, `{model}` and so on filled in; other braces stay."""
    names = "|".join(map(re.escape, values))
    return [re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], word) for word in words]


def filled_environment(settings: Mapping[str, object], values: Mapping[str, str]) -> dict[str, str]:
    """Return the table's own variables, filled in."""
    return {name: filled_in((value,), values)[0] for name, value in text_table(settings, "env").items()}
