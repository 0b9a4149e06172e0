"""Which texts are no sane output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.engines.protocols.sanity import degenerate


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("one symbol repeated", "!" * 64),
        ("one symbol repeated", " " + "! " * 30),
        ("one word repeated", "lock" * 16),
        ("one word repeated", "the " * 12),
        ("one word repeated", "lock" * 16 + "lo"),
        ("one symbol repeated", "The answer to this is " + "!" * 100),
        ("control bytes", "\x00\x00\x00"),
        ("control bytes", "ab\x01cd"),
        ("", "aaaaa"),
        ("", "no no no no"),
        ("", "Paris."),
        ("", ""),
        ("", "a\u2028b\u0085c\n\td" * 9),
        ("", "one two three four five six seven eight nine ten eleven twelve thirteen " * 9),
        ("", "| a | b |\n|---|---|\n| 1 | 2 |\n"),
        ("", "A heading\n" + "-" * 30),
    ],
)
def test_broken_output_is_told_from_sane_output(why, text):
    assert why == degenerate(text)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8), st.integers(16, 80)
)
def test_any_word_repeated_often_enough_is_degenerate(word, times):
    assert degenerate(word * times)
    assert degenerate(f"{word} " * times)
