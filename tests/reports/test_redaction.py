"""Text that may leave the machine: without secrets, bounded, printable."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tracemalloc
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.evidence.redaction import LIMIT_BYTES, REDACTED, Redactor, bounded, printable, secret_values

CASES = Path(__file__).parent.parent / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))


def expected(case: str) -> dict:
    return EXPECTED[case]["expected"]


def case_input(case: str) -> Path:
    return CASES / "inputs" / EXPECTED[case]["inputs"][0]


@pytest.mark.parametrize("field", ["failure_message", "skip_reason", "system_out"])
def test_rep_01_control_characters_leave_the_xml_readable(field: str) -> None:
    shown = printable(json.loads(case_input("REP-01").read_text(encoding="utf-8"))[field])
    root = ET.Element("failure", message=shown)
    root.text = shown
    again = ET.fromstring(ET.tostring(root, encoding="utf-8"))
    raw = sum(ord(letter) < 0x20 and letter not in "\n\t" for letter in shown)
    assert raw == expected("REP-01")["raw_control_chars"]
    assert shown == again.text
    if field == "failure_message":
        assert expected("REP-01")["message_contains"] in shown


@pytest.mark.parametrize("how", ["by value", "by pattern"])
def test_rep_03_no_secret_is_left_and_the_rest_is_readable(how: str) -> None:
    secrets = expected("REP-03")["secrets"]
    source = case_input("REP-03").read_text(encoding="utf-8")
    space: dict = {}
    exec(source.replace("@pytest.fixture\n", "").replace("import pytest\n", ""), space)  # noqa: S102 - the case is a program
    settings = space["Settings"]()
    headers = {"Authorization": f"Bearer {settings.api_key}"}
    text = f"settings = {settings!r}\nheaders = {headers!r}\nassert headers is None"
    shown = Redactor(secrets if how == "by value" else []).redact(text)
    assert (
        sum(shown.count(secret) for secret in secrets)
        == expected("REP-03")["secret_occurrences_in_any_artifact"]
    )
    assert "@10.0.0.9/redfish/v1" in shown
    assert "assert headers is None" in shown


SECRET = 'p@ss "wörd"/+&42'


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        json.dumps({"a": SECRET}),
        json.dumps({"a": SECRET}, ensure_ascii=False),
        *(base64.b64encode(b"x" * offset + SECRET.encode() + b"tail").decode() for offset in range(4)),
    ],
)
def test_a_known_secret_is_found_in_every_form(text: str) -> None:
    shown = Redactor([SECRET]).redact(f"before {text} after")
    assert REDACTED in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("got Bearer abcdef123456 back", "got Bearer [redacted] back"),
        ("Authorization: Basic cm9vdDpGQUtF\nnext", "Authorization: [redacted]\nnext"),
        ("https://root:hunter2@bmc-7:8443/redfish", "https://[redacted]@bmc-7:8443/redfish"),
        ("key sk-abcdefgh12345678 used", "key [redacted] used"),
        ("hf_abcdefghij and nvapi-abcdefgh1", "[redacted] and [redacted]"),
        ("password=hunter2 host=a", "password=[redacted] host=a"),
        ('{"api_key": "ab cd", "n": 3}', '{"api_key": "[redacted]", "n": 3}'),
        ("curl -H 'x-api-key: zz9'", "curl -H 'x-api-key: [redacted]'"),
    ],
)
def test_a_secret_is_found_by_its_looks(text: str, shown: str) -> None:
    assert shown == Redactor().redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 128, first_token=None, token: 17",
        "disk-usage of task-forces at https://node1:9400/metrics",
        "429 Too Many Requests at http://127.0.0.1:8000/v1 after 12.5 ms",
        "Basic functionality",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert text == Redactor(["abc"]).redact(text)


def test_redaction_of_a_long_line_takes_linear_time() -> None:
    for text in ("a.b://" * 50_000, "password" * 40_000, "api_key='" * 30_000):
        assert len(Redactor().redact(text)) > 0


def test_rep_07_one_line_of_fifty_megabytes_is_bounded_while_it_is_read() -> None:
    command = [sys.executable, str(case_input("REP-07"))]
    tracemalloc.start()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        shown = bounded(process.stdout)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    raw = shown.encode()
    assert len(raw) <= expected("REP-07")["attached_bytes_max"] == LIMIT_BYTES
    assert "\N{REPLACEMENT CHARACTER}" not in shown
    assert "bytes left out" in shown
    left_out = int(shown.split("[... ")[1].split(" ")[0].replace(",", ""))
    marker = len(f"\n[... {left_out:,} bytes left out ...]\n")
    assert left_out + len(raw) - marker == 50_000_000 // 3 * 3
    assert peak_bytes < 4_000_000


@given(st.text(max_size=3000), st.integers(min_value=100, max_value=2000))
def test_what_fits_is_kept_and_what_does_not_is_bounded(text: str, limit: int) -> None:
    raw = text.encode("utf-8", "replace")
    shown = bounded(io.BytesIO(raw), limit)
    assert len(shown.encode()) <= limit
    if len(raw) <= limit:
        assert shown == raw.decode()


@given(st.binary(max_size=2000))
def test_bytes_that_are_no_text_are_bounded_too(raw: bytes) -> None:
    assert len(bounded(io.BytesIO(raw), 300).encode()) <= 300


def test_a_secret_across_the_cut_is_not_left_in_halves() -> None:
    secret = "SECRET-" + "x" * 40
    for shift in range(0, 60, 7):
        text = "a" * (500 - shift) + secret + "b" * 40_000
        assert "SECRET" not in bounded(text, 1000, Redactor([secret]))


@given(st.text())
def test_printable_text_goes_through_xml_unchanged(text: str) -> None:
    shown = printable(text)
    root = ET.Element("a")
    root.text = shown
    assert (shown or None) == ET.fromstring(ET.tostring(root, encoding="utf-8")).text


def test_secret_values_are_chosen_by_the_name_of_the_variable() -> None:
    environ = {
        "OPENAI_API_KEY": "sk-1234567",
        "PGPASSWORD": "hunter22",
        "HF_TOKEN": "hf_abc123",
        "TOKENIZERS_PARALLELISM": "falsehood",
        "SSH_KEY_FILE": "/root/.ssh/id",
        "SHORT_SECRET": "abc",
        "HOME": "/root/home",
    }
    assert secret_values(environ) == ("hf_abc123", "hunter22", "sk-1234567")
