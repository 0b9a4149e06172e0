"""Samples as columns."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackgate.loadgen.results import columns, sample_file
from rackgate.loadgen.results.dictionary_column import DictionaryColumn
from rackgate.loadgen.results.sample_file import read_samples, write_samples
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.loadgen.worker.sample_row import burst
from rackgate.loadgen.worker.spool import read_spool, row_lines, row_of_sample, sample_of_line
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Outcome, Sample

MOMENT = st.none() | st.integers(0, 2**52)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)


@st.composite
def sample(draw):
    tokens = tuple(sorted(draw(st.lists(st.integers(0, 2**52), max_size=5))))
    return Sample(
        request_id=draw(TEXT),
        engine=draw(TEXT),
        load="l",
        label="t",
        outcome=draw(st.sampled_from(list(Outcome))),
        scheduled_ns=draw(st.integers(0, 2**52)),
        warmup=draw(st.booleans()),
        look=draw(st.integers(0, 2)),
        served_by=draw(st.none() | st.just("n1/gpu0")),
        sent_ns=draw(MOMENT),
        first_byte_ns=draw(MOMENT),
        first_token_ns=tokens[0] if tokens else None,
        first_answer_ns=draw(MOMENT),
        last_token_ns=tokens[-1] if tokens else None,
        done_ns=draw(MOMENT),
        token_ns=tokens,
        prompt_tokens=draw(st.none() | st.integers(0, 9)),
        output_tokens=draw(st.none() | st.integers(0, 9)),
        token_source=draw(st.none() | st.just("usage")),
        http_status=draw(st.none() | st.just(200)),
        finish_reason=draw(st.none() | st.just("stop")),
        detail=draw(TEXT),
        text_digest=draw(st.sampled_from(["", "ab"])),
        warnings=tuple(draw(st.lists(st.sampled_from(["burst", "no [DONE]"]), max_size=2, unique=True))),
    )


@settings(max_examples=40)
@given(samples=st.lists(sample(), max_size=6), origin=st.sampled_from(list(Origin)))
def test_a_table_is_its_samples_also_through_a_file(samples, origin, samples_of, tmp_path_factory):
    table = SampleTable.from_samples(samples, origin)
    assert samples == samples_of(table)
    path = tmp_path_factory.mktemp("t") / "x.parquet"
    write_samples(table, path)
    again = read_samples(path)
    assert (samples, origin) == (samples_of(again), again.origin)
    assert table.columns == again.columns
    for row, one in enumerate(samples):
        expected = one.ttft_ms(origin)
        got = table.column("ttft_ms")[row]
        assert math.isnan(got) if expected is None else expected == got


@given(sample())
def test_a_sample_survives_its_line(one):
    assert one == sample_of_line(row_lines([row_of_sample(one)]))


def fixed(**changes):
    fields = {
        "request_id": "r",
        "engine": "e",
        "load": "l",
        "label": "t",
        "outcome": Outcome.OK,
        "scheduled_ns": 1_000_000,
    }
    return Sample(**{**fields, **changes})


def test_derived_columns_follow_the_origin():
    one = fixed(
        sent_ns=3_000_000, first_token_ns=5_000_000, first_answer_ns=6_000_000, done_ns=9_000_000,
        token_ns=(5_000_000, 6_000_000, 9_000_000), output_tokens=5,
    )  # fmt: skip
    names = ("ttft_ms", "ttft_sent_ms", "time_to_first_answer_ms", "e2e_ms", "tpot_ms", "schedule_lag_ms")
    for origin, expected in ((Origin.SENT, [2, 2, 3, 6, 1, 2]), (Origin.SCHEDULED, [4, 2, 5, 8, 1, 2])):
        table = SampleTable.from_samples([one], origin)
        assert expected == [table.column(name)[0] for name in names]


def test_what_is_missing_is_null_in_the_file_and_never_nan(tmp_path):
    write_samples(SampleTable.from_samples([fixed(outcome=Outcome.DROPPED)], Origin.SENT), tmp_path / "x")
    row = pq.read_table(tmp_path / "x").to_pylist()[0]
    assert [row[name] for name in ("ttft_ms", "sent_ns", "tpot_ms", "served_by", "output_tokens")] == [
        None
    ] * 5


def test_a_burst_has_no_time_per_token():
    one = fixed(token_ns=(1, 2, 3, 4), output_tokens=4, warnings=("burst",))
    table = SampleTable.from_samples([one], Origin.SENT)
    assert (bool(table.burst[0]), bool(np.isnan(table.tpot_ms[0]))) == (True, True)


def test_rows_can_be_chosen_and_joined():
    table = SampleTable.from_samples([fixed(warmup=True), fixed(engine="f")], Origin.SENT)
    assert table.measured.engine.tolist() == ["f"]
    assert SampleTable.concat([table, table.measured]).engine.tolist() == ["e", "f", "f"]
    with pytest.raises(ValueError, match="one origin"):
        SampleTable.concat([table, SampleTable.from_samples([], Origin.SCHEDULED)])
    with pytest.raises(AttributeError):
        _ = table.nothing


def test_an_empty_table_has_its_columns():
    table = SampleTable.from_samples([], Origin.SENT)
    assert (len(table), len(table.measured.ttft_ms)) == (0, 0)


def test_a_torn_last_line_is_left_out(tmp_path):
    (tmp_path / "x").write_bytes(
        row_lines([row_of_sample(fixed())]) + row_lines([row_of_sample(fixed())])[:-9]
    )
    assert [fixed()] == list(read_spool(tmp_path / "x"))


@pytest.mark.parametrize(
    ("expected", "token_ms"),
    [
        (True, [5, 5, 5, 5]),
        (True, [5 + index // 20 * 300 for index in range(60)]),
        (False, [5, 5, 5]),
        (False, [5, 25, 45, 65, 85]),
        (False, [index // 4 * 20 for index in range(40)]),
        (False, [index * 0.5 for index in range(40)]),
        (False, []),
    ],
)
def test_a_buffered_stream_is_told_from_steps_of_several_tokens(expected, token_ms):
    assert expected == burst(tuple(round(moment * 1e6) for moment in token_ms))


@settings(max_examples=25)
@given(parts=st.lists(st.lists(sample(), max_size=5), min_size=1, max_size=3), at_once=st.integers(1, 6))
def test_spools_become_one_file_a_row_group_at_a_time(parts, at_once, samples_of, tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    spools = [folder / str(number) for number in range(len(parts))]
    for spool, samples in zip(spools, parts, strict=True):
        spool.write_bytes(b"".join(row_lines([row_of_sample(one)]) for one in samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_file, "ROWS_PER_GROUP", at_once)
        table = sample_file.write_sample_file(
            (sample for spool in spools for sample in read_spool(spool)), Origin.SENT, folder / "x"
        )
    expected = [one for samples in parts for one in samples]
    assert expected == samples_of(table) == samples_of(read_samples(folder / "x"))
    mask = np.arange(len(expected)) % 2 == 0
    assert expected[::2] == samples_of(table.where(mask))
    assert expected[::2][1:] == samples_of(table.where(mask).where(np.arange(len(expected[::2])) > 0))


def test_a_finished_request_takes_less_than_200_bytes_of_memory(tmp_path):
    samples = [
        fixed(request_id=f"r{n}", token_ns=tuple(range(n, n + 50)), output_tokens=50) for n in range(3000)
    ]
    write_samples(SampleTable.from_samples(samples, Origin.SENT), tmp_path / "x")
    table = read_samples(tmp_path / "x")
    kept = 0
    for name in columns.CACHED:
        table.column(name)
        held = table._columns[name]
        kept += held.codes.nbytes if isinstance(held, DictionaryColumn) else held.nbytes
    assert kept / len(table) < 135


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=3),
    st.sets(st.sampled_from("abcd")),
)
def test_labels_are_the_texts_they_stand_for(parts, wanted):
    texts = [text for part in parts for text in part]
    labels = DictionaryColumn.concat([DictionaryColumn.of(part) for part in parts])
    assert texts == labels.texts.tolist()
    assert [text in wanted for text in texts] == labels.isin(wanted).tolist()
    assert {text: texts.count(text) for text in sorted(set(texts))} == labels.counts()
