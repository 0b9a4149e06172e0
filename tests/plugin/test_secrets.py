"""No secret and no unreadable character leaves through a file or the terminal (REP-01, REP-03, REP-04)."""

import base64
import json
import xml.dom.minidom
from pathlib import Path
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent.parent / "cases" / "inputs"
KEY = "p4per+K3y/with=signs&more"
FORMS = (KEY, quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode().rstrip("="))


def _leaks(outcome, secrets):
    return [
        (name, secret)
        for name, content in outcome.everything().items()
        for secret in secrets
        if secret.encode() in content
    ]


def test_the_key_of_an_engine_is_in_no_file_and_not_in_the_terminal(pytester, ladder, monkeypatch):
    monkeypatch.setenv("PAPER_API_KEY", KEY)
    pytester.path.joinpath("test_mine.py").write_text(
        f"""
import os, sys, pytest
pytestmark = [pytest.mark.rack_acceptance]
KEY = {KEY!r}

class Client:
    def __repr__(self):
        return f"Client(key={{KEY!r}}, url={FORMS[1]!r}, basic={FORMS[2]!r})"

@pytest.fixture
def client():
    print("out", KEY)
    print("err", KEY, file=sys.stderr)
    return Client()

@pytest.fixture
def broken(client):
    raise OSError(f"engine refused {{KEY}}")

def test_call(client):
    local = KEY
    assert client is None, KEY

def test_setup(broken): pass
def test_skip(): pytest.skip("no " + KEY)
@pytest.mark.xfail(reason="bad " + KEY)
def test_xfail(): raise OSError(KEY)
def test_event(rack_run): rack_run.event("note", f"Authorization: Bearer {{KEY}}")
def test_property(rack_run, record_testsuite_property, request):
    request.node.user_properties.append(("key", KEY))
"""
    )
    values = {
        "preflight.card_present @ node1/gpu0": {"reason": "unreachable", "detail": f"GET /?key={KEY} refused"}
    }
    outcome = ladder("--showlocals", "-rA", stages=("preflight",), values=values)
    assert 1 == outcome.exit_code
    assert [] == _leaks(outcome, FORMS)
    assert "engine refused [redacted]" in outcome.text
    assert "GET /?key=[redacted] refused" in outcome.text
    assert "ERROR test_mine.py::test_setup - OSError: engine refused [redacted]" in outcome.text


def test_a_key_in_a_fixtures_repr_is_not_repeated(pytester, ladder):
    text = (CASES / "REP-03.py").read_text()
    pytester.makepyfile(
        test_leak=text.replace(
            "import pytest\n", "import pytest\npytestmark = pytest.mark.rack_acceptance\n", 1
        )
    )
    outcome = ladder("--showlocals", stages=("preflight",))
    assert [] == _leaks(outcome, ("FAKE-KEY-0123456789abcdef", "FAKE-BMC-PASSWORD-42"))
    assert "10.0.0.9/redfish/v1" in outcome.text
    assert "headers is None" in outcome.text


def test_a_module_that_cannot_be_collected_tells_no_secret(pytester, ladder, monkeypatch):
    monkeypatch.setenv("PAPER_API_KEY", KEY)
    pytester.makepyfile(test_broken=f"raise OSError({KEY!r})")
    outcome = ladder(stages=("preflight",))
    assert 2 == outcome.exit_code
    assert [] == _leaks(outcome, FORMS)
    assert ("INTERRUPTED: not accepted, the run did not reach its end", False) == (
        outcome.end["headline"],
        outcome.end["accepted"],
    )


def test_any_text_gives_a_junit_file_that_parses(pytester, ladder):
    hostile = json.loads((CASES / "REP-01.json").read_text())
    pytester.path.joinpath("texts.json").write_text(json.dumps(hostile))
    pytester.makepyfile(
        test_mine="""
        import json, pathlib, pytest
        pytestmark = pytest.mark.rack_acceptance
        TEXTS = json.loads(pathlib.Path(__file__).with_name("texts.json").read_text())
        def test_fails(): raise OSError(TEXTS["failure_message"])
        def test_skips():
            print(TEXTS["system_out"])
            pytest.skip(TEXTS["skip_reason"])
        """
    )
    check = "preflight.card_present @ node1/gpu0"
    values = {check: {"reason": "died", "detail": hostile["failure_message"] + "\ud800"}}
    outcome = ladder("-o", "junit_logging=all", stages=("preflight",), values=values)
    content = (outcome.folder / "views" / "default" / "junit.xml").read_bytes()
    xml.dom.minidom.parseString(content)  # noqa: S318  our own file
    assert [] == [byte for byte in content if byte < 0x20 and byte not in b"\n\r\t"]
    assert "engine said" in outcome.cases["rackgate.preflight", check].find("failure").get("message")
    assert [] == [
        character for character in outcome.text if ord(character) < 0x20 and character not in "\n\r\t"
    ]
    assert 1 == outcome.exit_code


def test_measured_values_are_properties_of_the_suite_and_of_no_case(pytester, ladder):
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    values = {"single_card.ttft_p95 @ node2/gpu0": 123.4}
    outcome = ladder(stages=("single_card",), values=values)
    assert 0 == outcome.exit_code
    assert "123 ms (PASS)" == outcome.properties["single_card.ttft_p95 @ node2/gpu0"]
    assert "cpu" == outcome.properties["rackgate.grade"]
    assert [] == list(outcome.junit.iterfind(".//testcase/properties"))
    assert "warning" not in outcome.text.lower()
    attributes = {name for case in outcome.junit.iter("testcase") for name in case.attrib}
    assert {"classname", "name", "time"} == attributes


def test_names_in_junit_are_unique_and_know_no_path(ladder):
    outcome = ladder(stages=("preflight", "single_card"))
    names = [(case.get("classname"), case.get("name")) for case in outcome.junit.iter("testcase")]
    checks = outcome.of("plan")[0]["checks"]
    asked, declared = len(checks), sum(bool(check["declared_absent"]) for check in checks)
    assert len(names) == len(set(names)) == asked + 1
    assert {"rackgate.preflight", "rackgate.single_card", "rackgate.ledger"} == {
        classname for classname, _ in names
    }
    suite = next(outcome.junit.iter("testsuite"))
    assert (str(asked + 1), "0", "0", str(declared)) == tuple(
        suite.get(key) for key in ("tests", "failures", "errors", "skipped")
    )


@pytest.mark.parametrize("family", ["xunit1", "legacy", "xunit2"])
def test_the_users_own_junit_path_and_family_are_kept(pytester, ladder, family):
    pytester.makeini(f"[pytest]\njunit_family = {family}\n")
    outcome = ladder("--junitxml", "mine/j.xml", "--junitprefix", "lab", stages=("preflight",))
    import xml.etree.ElementTree as ET

    names = {
        case.get("classname")
        for case in ET.parse(pytester.path / "mine" / "j.xml").getroot().iter("testcase")
    }
    assert {"rackgate.preflight", "rackgate.ledger"} == names
    assert not (outcome.folder / "views" / "default" / "junit.xml").exists()
