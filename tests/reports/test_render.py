"""Writing views: whole files, a manifest, and trouble that is raised."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from synthetic import make_run

from rackgate_reports.evidence import RunEvidence, number_of
from rackgate_reports.plugin import pytest_rack_reports, render_html, render_summary
from rackgate_reports.render import write_views


def test_a_view_has_its_files_and_a_manifest_of_digests(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    paths = write_views(run, {"report.html": render_html, "summary.md": render_summary})
    manifest = json.loads((run / "views" / "default" / "manifest.json").read_bytes())
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}
    records = hashlib.sha256((run / "evidence" / "records.jsonl").read_bytes()).hexdigest()
    assert digests == manifest["files"]
    assert records == manifest["evidence"]["records.jsonl"]
    assert manifest["evidence"]["complete"] is True


def test_rendering_again_gives_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    first = write_views(run, {"report.html": render_html})["report.html"].read_bytes()
    second = write_views(run, {"report.html": render_html}, view="again")["report.html"].read_bytes()
    assert first == second


def test_the_evidence_is_left_as_it_was(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in (run / "evidence").rglob("*") if path.is_file()}
    write_views(run, {"report.html": render_html})
    assert before == {path: path.read_bytes() for path in (run / "evidence").rglob("*") if path.is_file()}


def test_trouble_in_a_renderer_is_raised_with_the_file_named(tmp_path: Path) -> None:
    def broken(run: RunEvidence) -> str:
        raise RuntimeError("no ink")

    with pytest.raises(RuntimeError, match="no ink") as caught:
        write_views(make_run(tmp_path / "run"), {"broken.html": broken})
    assert "while rendering broken.html of run" in caught.value.__notes__


@pytest.mark.parametrize("name", ["../report.html", "", "a/b", "manifest.json", ".hidden"])
def test_a_name_that_leaves_the_view_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name"):
        write_views(make_run(tmp_path / "run"), {name: render_summary})


def test_a_folder_without_records_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_views(tmp_path, {"summary.md": render_summary})


def test_both_views_are_registered_through_the_hook() -> None:
    registered: dict[str, object] = {}
    pytest_rack_reports(None, registered.__setitem__)
    assert registered == {"report.html": render_html, "summary.md": render_summary}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("inf", float("inf")), ("-inf", float("-inf")), (3, 3.0), ("3", None), (True, None)],
)
def test_numbers_of_records_are_read_strictly(value: object, expected: float | None) -> None:
    assert expected == number_of(value)
