"""Register the shipped reports: `report.html` for people, `summary.md` for the job page of a CI system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from rackgate_reports.evidence import RunEvidence


def render_html(run: RunEvidence) -> str:
    """Return the run as one self-contained HTML document."""
    from rackgate_reports.formats.html import render_html as render

    return render(run)


def render_summary(run: RunEvidence) -> str:
    """Return the run as Markdown of less than 60 KB."""
    from rackgate_reports.formats.markdown import render_summary as render

    return render(run)


def pytest_rack_reports(
    config: pytest.Config,  # noqa: ARG001 (the hook's signature)
    register: Callable[[str, Callable[[RunEvidence], str]], None],
) -> None:
    """Register both reports."""
    register("report.html", render_html)
    register("summary.md", render_summary)


def pytest_rack_views(
    folder: Path, reports: Mapping[str, Callable[[RunEvidence], str]], view: str
) -> list[Path]:
    """Write the files of a view and return their paths."""
    from rackgate_reports.render import write_views

    return list(write_views(folder, reports, view).values())
