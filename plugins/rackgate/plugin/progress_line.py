"""Progress of a load while pytest runs: one line redrawn on a terminal, or log lines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rackgate.loadgen.progress import LOG_EVERY_S, TERMINAL_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class ProgressLine:
    """Shows progress through pytest's reporter; `say` writes a whole line."""

    def __init__(self, plugins: pytest.PytestPluginManager, say: Callable[[str], None]) -> None:
        self._plugins = plugins
        self._say = say
        self._drawn = False
        reporter = plugins.get_plugin("terminalreporter")
        self._terminal = reporter is not None and reporter.isatty
        self.every_s = TERMINAL_EVERY_S if self._terminal else LOG_EVERY_S

    def show(self, text: str) -> None:
        """Show a line, no wider than the terminal: one that wraps cannot be drawn over."""
        if self._terminal:
            self._draw(f"  {text}"[: shutil.get_terminal_size().columns - 1])
        else:
            self._say(text)

    def done(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._draw("")
        self._drawn = False

    def _draw(self, text: str) -> None:
        reporter = self._plugins.get_plugin("terminalreporter")
        capture = self._plugins.get_plugin("capturemanager")
        if reporter is None or capture is None:
            return
        with capture.global_and_fixture_disabled():
            if not self._drawn:
                reporter.ensure_newline()
            reporter.rewrite(text, erase=True)
            reporter.write("\r")
            reporter.flush()
        self._drawn = True
