import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.hosts.child_process import Child, ChildDied
from rackgate.telemetry.cards.nvml_protocol import answer_of, numbers_line, words_line

MOMENTS = st.integers(0, 2**62)
VALUES = st.lists(st.floats(allow_nan=False), max_size=64)


@given(MOMENTS, VALUES)
def test_numbers_arrive_as_they_were(t_ns, values):
    line = numbers_line(t_ns, values)
    assert (line[-1:], line.count(b"\n")) == (b"\n", 1)
    assert (t_ns, *values) == answer_of(line.rstrip(b"\n"))


@given(MOMENTS, VALUES, st.integers(1, 15))
def test_numbers_that_were_cut_are_no_numbers(t_ns, values, cut):
    with pytest.raises(ValueError, match=r".+"):
        answer_of(numbers_line(t_ns, values).rstrip(b"\n")[:-cut])


def test_words_arrive_as_they_were():
    said = {"t_ns": 7, "fields": ["power_w"], "cards": {"0": [["absent", "no such line\nor card"]]}}
    line = words_line(said)
    assert line.count(b"\n") == 1
    assert said == answer_of(line)
    with pytest.raises(ValueError, match=r".+"):
        answer_of(line[:-2])


def test_a_process_whose_answer_cannot_be_read_counts_as_dead(tmp_path):
    (tmp_path / "torn.py").write_text("import sys\nfor line in sys.stdin: print('=0102', flush=True)\n")
    child = Child("torn", {"PYTHONPATH": str(tmp_path)})
    with pytest.raises(ChildDied, match="torn"):
        child.ask(b"brief\n", answer_of, 5.0)
    child.close()
