"""A rack on paper: the whole ladder in a second, every value as a test wants it."""

import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from rackgate.evidence.record import read_records

CONFTEST = """
import json, os, pathlib
import pytest
from rackgate.nouns.measurement import Bounds, Measurement, Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.target import EngineSpec, Gateway, Member, Target

HERE = pathlib.Path(__file__).parent

def pytest_rack_target(config):
    names = [(f"node{n}", f"node{n}/gpu{g}") for n in (1, 2) for g in (0, 1)]
    nodes = tuple(
        Node(
            name=f"node{n}",
            cards=tuple(Card(name=f"node{n}/gpu{g}", node=f"node{n}", index=g) for g in (0, 1)),
            access=NodeAccess(root="/nowhere"),
        )
        for n in (1, 2)
    )
    engines = tuple(
        EngineSpec(
            name=card.replace("/", "-"), launcher="remote", model="paper", url="http://127.0.0.1:9",
            members=(Member(node=node, cards=(card,)),), api_key_env="PAPER_API_KEY",
        )
        for node, card in names
    )
    return Target(
        name="paper", model="paper", grade="cpu", nodes=nodes, engines=engines,
        gateway=Gateway(url="http://127.0.0.1:9"), may_break=("engine",),
    )

@pytest.fixture
def measured(rack_slo):
    values = json.loads((HERE / "values.json").read_text())
    given = values.get(rack_slo.id, values.get(rack_slo.slo.id, rack_slo.slo.bound))
    row = rack_slo.slo
    facts = {"metric": row.metric, "entity": rack_slo.entity, "unit": row.unit, "count": 5000}
    if isinstance(given, dict):
        bounds = given.pop("bounds", None)
        facts |= given | {"bounds": Bounds(**bounds) if bounds else None}
        facts.setdefault("value", None)
        if facts.get("reason"):
            facts["reason"] = Reason(facts["reason"])
    else:
        facts["value"] = float(given)
    return Measurement(**facts)
"""

STAGE = """
import pytest
pytestmark = [pytest.mark.rack_acceptance, pytest.mark.rack_stage("{stage}")]
def test_slo(rack_slo, measured, rack_check):
    rack_check(rack_slo, measured)
"""

LEDGER = """
from rackgate_suites.test_ledger import pytestmark, test_every_asked_check_has_a_record
"""

WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins that cost more than the run and change nothing about it."""

STAGES = ("selfcheck", "preflight", "single_card", "two_card", "cross_node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run left behind."""

    exit_code: int
    text: str
    folder: Path

    @property
    def records(self):
        return list(read_records(self.folder / "evidence" / "records.jsonl"))

    def of(self, kind):
        return [record for record in self.records if record["kind"] == kind]

    @property
    def end(self):
        (end,) = self.of("end")
        return end

    @property
    def verdicts(self):
        return {record["check"]: record["verdict"] for record in self.of("verdict")}

    @property
    def junit(self):
        return ET.parse(self.folder / "views" / "default" / "junit.xml").getroot()

    @property
    def cases(self):
        return {(case.get("classname"), case.get("name")): case for case in self.junit.iter("testcase")}

    @property
    def properties(self):
        return {one.get("name"): one.get("value") for one in self.junit.iter("property")}

    def line(self, beginning):
        """Return the first line of the terminal that begins so."""
        found = [line for line in self.text.splitlines() if line.startswith(beginning)]
        return found[0] if found else pytest.fail(f"no line begins with {beginning!r}:\n{self.text}")

    def everything(self):
        """Return every text that the run wrote, by file name."""
        files = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        return {"terminal": self.text.encode(), **files}


@pytest.fixture(autouse=True)
def no_rackgate_environment(monkeypatch, tmp_path):
    """Keep the machine's own settings and leftovers out of these tests."""
    for name in [name for name in os.environ if name.startswith(("RACKGATE_", "PYTEST_"))]:
        if name != "PYTEST_CURRENT_TEST":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def run(request, pytester, tmp_path):
    """Run pytest in a process of its own and return what it left.

    It is a fork of a process that has imported all modules, or, where the test is marked with `own_process`,
    a new interpreter.
    """
    anew = request.node.get_closest_marker("own_process") is not None

    def run(*arguments, out="run"):
        if anew:
            done = pytester.runpytest_subprocess(*WITHOUT, *map(str, arguments))
            return _outcome(int(done.ret), done.stdout, done.stderr, pytester.path / out)
        forked_pytest = request.getfixturevalue("forked_pytest")
        done = forked_pytest.run(
            [f"--basetemp={tmp_path / 'base'}", *WITHOUT, *arguments],
            folder=pytester.path,
            environment=os.environ,
            timeout_s=180,
        )
        return _outcome(done.returncode, done.stdout, done.stderr, pytester.path / out)

    return run


def _outcome(exit_code, output, errors, folder):
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{output}\n{errors}")
    return Outcome(exit_code=exit_code, text=text, folder=folder)


@pytest.fixture
def ladder(pytester, run):
    """Run the stages named (all of the paper's by default) with these values by check or row."""

    def ladder(*arguments, values=None, stages=STAGES, out="run"):
        pytester.path.joinpath("values.json").write_text(json.dumps(values or {}))
        pytester.makepyfile(
            **{f"test_{stage}": STAGE.format(stage=stage) for stage in stages},
            test_ledger=LEDGER,
        )
        asked = ("--rack-stage", ",".join(stages)) if stages else ()
        return run("-m", "rack_acceptance", "--rack-out", out, *asked, *arguments, out=out)

    return ladder


@pytest.fixture(autouse=True)
def paper_rack(pytester):
    """Put the paper rack's conftest into the folder of the test."""
    pytester.makeconftest(CONFTEST)
    pytester.path.joinpath("values.json").write_text("{}")


@pytest.fixture
def extend(pytester):
    """Add code to the conftest of the paper rack."""

    def extend(code):
        text = pytester.path.joinpath("conftest.py").read_text()
        pytester.makeconftest(text + code)

    return extend
