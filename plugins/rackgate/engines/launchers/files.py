"""Small files that a target lays beside its engine, such as a configuration: `{files}` is their folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rackgate.engines.launchers.filling import filled_in
from rackgate.engines.launchers.settings import TEXT_TABLE, Key, text_table

FILES_KEY = {"files": Key(kind=TEXT_TABLE)}
"""File name = its text, in which the launcher's words are filled in."""

BOX_FOLDER = "/run/rackgate"
"""Where they lie in a container."""


def file_problems(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with the names of the files."""
    names = settings.get("files")
    return [
        f"'files': {name!r} must be the name of a file, without a folder"
        for name in (names if isinstance(names, dict) else ())
        if "/" in name or name in ("", ".", "..")
    ]


def filled_files(settings: Mapping[str, object], values: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files by name, filled in."""
    given = text_table(settings, "files")
    return {name: filled_in((content,), values)[0].encode() for name, content in given.items()}


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write them to a folder of this machine; raises `OSError`."""
    if files:
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
