"""The JUnit file of a later judgement: one test case per check, in the format of pytest (xunit2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from rackgate.evidence.redaction import printable
from rackgate.judging.message import number
from rackgate_reports.evidence import RunEvidence, number_of


def render_junit(run: RunEvidence) -> str:
    """Return the document; a FAIL or an UNKNOWN is a failure whose message begins with the word."""
    end = run.end or {}
    verdicts = {str(record["check"]): record for record in run.of("verdict")}
    suite = ET.Element("testsuite", name="rackgate", errors="0", time="0", timestamp=str(run.run.get("at")))
    properties = ET.SubElement(suite, "properties")
    about = {"headline": end.get("headline"), "scope": end.get("scope_text"), "grade": run.grade}
    about |= {"profile": run.run.get("profile"), "run_id": run.run.get("run_id")}
    for name, value in about.items():
        ET.SubElement(properties, "property", name=f"rackgate.{name}", value=printable(str(value or "")))
    for check, record in verdicts.items():
        shown = f"{number(number_of(record.get('value')), str(record.get('unit')))} ({record.get('verdict')})"
        if not record.get("skipped"):
            ET.SubElement(properties, "property", name=printable(check), value=printable(shown))
    cases = [_case(suite, str(asked["id"]), asked, verdicts.get(str(asked["id"]))) for asked in run.checks]
    suite.set("tests", str(len(cases)))
    for kind in ("failures", "skipped"):
        suite.set(kind, str(cases.count(kind)))
    document = ET.Element("testsuites", name="rackgate judge")
    document.append(suite)
    return ET.tostring(document, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, check: str, asked: Mapping[str, Any], record: Mapping[str, Any] | None) -> str:
    """Add one test case and return what it counts as: `failures`, `skipped` or `passed`."""
    names = {"classname": f"rackgate.{asked.get('stage')}", "name": printable(check), "time": "0"}
    case = ET.SubElement(suite, "testcase", names)
    message = printable(str(record["message"]) if record else "UNKNOWN: no verdict was recorded")
    if record and record.get("skipped"):
        ET.SubElement(case, "skipped", type="pytest.skip", message=message.split("\n", 1)[0])
        return "skipped"
    if record and record.get("verdict") in ("PASS", "WARN"):
        return "passed"
    failure = ET.SubElement(case, "failure", message=message.split("\n", 1)[0])
    failure.text = message
    return "failures"
