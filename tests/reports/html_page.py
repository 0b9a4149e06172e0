"""The HTML report as a browser would see it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

from rackgate_reports.evidence import load_run
from rackgate_reports.formats.html import render_html

if TYPE_CHECKING:
    from pathlib import Path


class Page(HTMLParser):
    """What a browser would see: elements, attributes, text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.rows: list[dict[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr" and dict(attrs).get("data-t"):
            self.rows.append({name: value or "" for name, value in attrs})
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page_of(folder: Path) -> Page:
    return Page(render_html(load_run(folder)))
