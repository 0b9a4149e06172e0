"""JUnit: pytest's own file in the run folder, with each check's name and the measured values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from _pytest.junitxml import mangle_test_address, xml_key

from rackgate.evidence.redaction import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from xml.etree.ElementTree import Element

    import pytest
    from _pytest.junitxml import LogXML

    from rackgate.run.run import Run


_VERDICTS = ("FAIL", "UNKNOWN")


class JUnit:
    """Pytest's own JUnit file, in the run folder unless the user named another place.

    Nothing is written where no run was opened: until `open` the file is the null device.
    """

    def __init__(self, config: pytest.Config, run: Run | None) -> None:
        self._config = config
        self._path: Path | None = None
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        if run is not None and config.getoption("xmlpath", default=None) is None:
            self._path = run.folder / "views" / "default" / "junit.xml"
            config.option.xmlpath = os.devnull

    @property
    def _xml(self) -> LogXML | None:
        return self._config.stash.get(xml_key, None)

    def open(self) -> None:
        """Direct the file to the run folder, which exists now."""
        if self._xml is not None and self._path is not None:
            self._xml.logfile = str(self._path)

    def name(self, nodeid: str, classname: str, name: str) -> None:
        """Note the identity of an item: a node id differs between a checkout and an installation."""
        self._names[_address(nodeid, self._xml)] = (classname, printable(name))

    def finish(self, properties: Mapping[str, str]) -> None:
        """Give every test case its name, and the suite what was measured.

        Properties go on the suite: below a test case they break strict consumers. An error in a fixture
        is shown as `failed on setup with "UNKNOWN ..."` by pytest; the message must begin with the word.
        """
        xml = self._xml
        if xml is None:
            return
        for reporter in xml.node_reporters_ordered:
            if "id" in vars(reporter):
                reporter.finalize()
            self._amend(reporter.to_xml())
        for name, value in properties.items():
            xml.add_global_property(printable(name), printable(value))

    def _amend(self, case: Element) -> None:
        key = (case.get("classname", ""), case.get("name", ""))
        classname, name = self._names.get(key, key)
        case.set("classname", classname)
        case.set("name", name)
        for outcome in case.iter("error"):
            text = outcome.text or ""
            if text.startswith(_VERDICTS):
                outcome.set("message", text.split("\n", 1)[0])


def _address(nodeid: str, xml: LogXML | None) -> tuple[str, str]:
    names = mangle_test_address(nodeid)
    prefix = [xml.prefix] if xml is not None and xml.prefix else []
    return ".".join([*prefix, *names[:-1]]), names[-1]
