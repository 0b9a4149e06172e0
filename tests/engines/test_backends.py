"""How the words of a gateway's table name the engines behind it."""

from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.gateway_backends import named_backends, with_backends

URLS = {"a": "http://10.0.0.1:8000", "b.2": "http://[::1]:81", "c": None, "d": "https://d"}


def files(text):
    return with_backends({"files": {"x.cfg": text}}, URLS)["files"]["x.cfg"].split("\n")


def test_a_line_that_names_each_is_repeated_for_every_engine_that_answers():
    assert files("head\nserver {each.name} {each.host}:{each.port}\ntail") == [
        "head",
        "server a 10.0.0.1:8000",
        "server b.2 ::1:81",
        "server d d:443",
        "tail",
    ]


def test_a_line_that_names_an_engine_that_did_not_come_up_is_left_out():
    assert files("1 {a.url}\n2 {c.url}\n3 {a.url} {c.host}\n4 {b.2.url}") == [
        "1 " + URLS["a"],
        "4 " + URLS["b.2"],
    ]


def test_words_are_repeated_and_values_joined_and_left_out():
    table = with_backends(
        {
            "command": ["--workers", "{each.url}", "--first={c.url}"],
            "env": {"ALL": "{each.port}", "C": "{c.url}"},
        },
        URLS,
    )
    assert table == {
        "command": ["--workers", URLS["a"], URLS["b.2"], URLS["d"]],
        "env": {"ALL": "8000,81,443"},
    }


def test_one_line_can_name_each_and_an_engine():
    assert files("{each.name} after {a.name}") == ["a after a", "b.2 after a", "d after a"]


def test_the_launchers_own_words_and_other_braces_stay():
    assert files("bind {host}:{port} { path /health } {x.url}") == [
        "bind {host}:{port} { path /health } {x.url}"
    ]


def test_the_names_in_braces_are_told_each_once():
    settings = {"files": {"f": "{a.url} {each.host}"}, "command": ["{a.port}", 7], "env": {"X": "{b.2.name}"}}
    assert named_backends(settings) == ("a", "each", "b.2")
    assert named_backends({"files": "{a.url}", "command": None}) == ()


@given(st.text())
def test_a_text_that_names_no_engine_is_never_changed(text):
    if not named_backends({"files": {"f": text}}):
        assert with_backends({"files": {"f": text}}, URLS)["files"]["f"] == text
