"""Write views of a run: folders of rendered files, with a manifest of the evidence behind them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rackgate.evidence.record import JUDGEMENT
from rackgate_reports.evidence import RunEvidence, load_run, with_judgement
from rackgate_reports.formats.junit import render_junit

MANIFEST = "manifest.json"
"""The file of a view that lists the other files."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def write_views(
    run_folder: Path, renderers: Mapping[str, Callable[[RunEvidence], str]], view: str = "default"
) -> dict[str, Path]:
    """Render every file into `RUN/views/VIEW/` and return the paths by name.

    A view whose folder holds a later judgement (`rackgate judge`) shows that judgement, with a JUnit file
    of its own. Each file is replaced atomically. The manifest has the SHA-256 of each file and of the
    evidence. Raises ValueError for a name that is no file name; an error of a renderer gets a note with the
    file's name.
    """
    for name in (view, *renderers):
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ValueError(f"{name!r} cannot name a view or a file of one")
    run = load_run(run_folder)
    folder = run_folder / "views" / view
    folder.mkdir(parents=True, exist_ok=True)
    judgement = folder / JUDGEMENT
    if judgement.is_file():
        run, renderers = with_judgement(run, judgement), {**renderers, "junit.xml": render_junit}
    paths: dict[str, Path] = {}
    digests: dict[str, str] = {}
    for name, render in sorted(renderers.items()):
        try:
            content = render(run).encode("utf-8", "replace")
        except Exception as error:
            error.add_note(f"while rendering {name} of {run_folder.name}")
            raise
        paths[name] = folder / name
        digests[name] = hashlib.sha256(content).hexdigest()
        _replace(paths[name], content)
    manifest: dict[str, Any] = {
        "view": view,
        "files": digests,
        "evidence": {
            "records.jsonl": run.digest,
            "records": len(run.records),
            "complete": run.end is not None,
        },
    }
    if judgement.is_file():
        manifest["judgement"] = {
            JUDGEMENT: hashlib.sha256(judgement.read_bytes()).hexdigest(),
            "acceptance": run.run.get("acceptance"),
            "accepted": bool(run.end and run.end.get("accepted")),
        }
    _replace(folder / MANIFEST, (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())
    return paths


def _replace(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so that a reader never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)
