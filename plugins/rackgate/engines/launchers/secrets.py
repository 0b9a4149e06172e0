"""Secrets of an engine: read at the start from the environment or a file, in no description of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackgate.engines.launchers.settings import TEXT, TEXT_TABLE, TEXTS, Key, text_table, texts
from rackgate.nouns.target import EngineSpec

SECRET_KEYS = {
    "env_from": Key(kind=TEXTS),
    "secret_files": Key(kind=TEXT_TABLE),
    "secrets_as": Key(kind=TEXT, one_of=("env", "files")),
}
"""`env_from` names variables of our environment, `secret_files` maps a variable to a file that holds it."""

_FOLDER = "/run/secrets"
_SCRIPT = f"{_FOLDER}/rackgate.env"


class SecretMissing(Exception):
    """A secret is not where the target says; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets of one engine by the variable's name; the values are in no representation."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedStart:
    """How a container is started so that its description has no secret.

    `files` are laid into the created container before it starts; `entrypoint` is None for the image's own.
    """

    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def read_secrets(spec: EngineSpec) -> Secrets:
    """Return the engine's secrets; raises `SecretMissing` with all that cannot be read."""
    names = texts(spec.settings, "env_from")
    absent = [name for name in names if name not in os.environ]
    if absent:
        raise SecretMissing(f"not set in our environment: {', '.join(absent)}", f"export {' '.join(absent)}")
    values = {name: os.environ[name] for name in names}
    for name, path in text_table(spec.settings, "secret_files").items():
        try:
            values[name] = Path(path).expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise SecretMissing(
                f"the file {path} of the secret {name} cannot be read: {reason}", "check its path and mode"
            ) from error
    return Secrets(values=values)


def hidden_values(spec: EngineSpec) -> tuple[str, ...]:
    """Return the values that no text of this engine may show; what cannot be read cannot be shown."""
    names = (*((spec.api_key_env,) if spec.api_key_env else ()), *texts(spec.settings, "env_from"))
    found = [os.environ[name] for name in names if os.environ.get(name)]
    for path in text_table(spec.settings, "secret_files").values():
        try:
            found.append(Path(path).expanduser().read_text("utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
    return tuple(found)


def wrapped_start(
    secrets: Secrets, entrypoint: tuple[str, ...], command: tuple[str, ...], *, as_files: bool = False
) -> WrappedStart:
    """Return how to start `entrypoint` and `command` with the secrets at hand.

    As variables: a shell reads them from a file and then becomes the engine, so the image needs `sh`.
    As files: `/run/secrets/NAME`, and `NAME_FILE` says where.
    """
    if not secrets.values:
        return WrappedStart(entrypoint=None, command=command, environment={})
    if as_files:
        files = {f"{_FOLDER}/{name}": value.encode() for name, value in secrets.values.items()}
        places = {f"{name}_FILE": f"{_FOLDER}/{name}" for name in secrets.values}
        return WrappedStart(entrypoint=None, command=command, environment=places, files=files)
    script = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in secrets.values.items())
    return WrappedStart(
        entrypoint=("/bin/sh", "-c", f'. {_SCRIPT}; exec "$@"', "rackgate", *entrypoint),
        command=command,
        environment={},
        files={_SCRIPT: script.encode()},
    )
