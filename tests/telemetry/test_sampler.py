import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

import rackgate.telemetry.sampler as sampler_module
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.rejudge.telemetry import telemetry_window
from rackgate.telemetry.cards.exporter_source import ExporterSource
from rackgate.telemetry.reading import CARD_FIELDS, FIELDS, REQUIRED, Reading
from rackgate.telemetry.sampler import Sampler
from rackgate.telemetry.table import TelemetryTable
from rackgate.telemetry.thinning import Thinning

SECOND = 1_000_000_000


class Scripted:
    """A source that says what it is told, and counts."""

    def __init__(self, answer, name="scripted"):
        self.name = name
        self.polls = 0
        self.closed = False
        self._answer = answer

    def poll(self):
        self.polls += 1
        return self._answer()

    def nothing(self, reason, detail):
        return [reading(None, reason=reason, detail=detail)]

    def close(self):
        self.closed = True


def reading(value, field="temperature_c", t_ns=None, entity="n1/gpu0", reason=None, detail=""):
    moment = time.perf_counter_ns() if t_ns is None else t_ns
    missing = reason or (Reason.ABSENT if value is None else None)
    return Reading(moment, "n1", entity, field, value, missing, detail)


def test_a_window_has_the_readings_of_every_source(tmp_path):
    one = Scripted(lambda: [reading(40.0)])
    other = Scripted(lambda: [reading(3.0, "requests_waiting", entity="engine-1")], "engine")
    sampler = Sampler([one, other], tmp_path / "parts", interval_s=0.02)
    begin = time.perf_counter_ns()
    sampler.start()
    until(lambda: one.polls > 5 and other.polls > 5)
    table = sampler.window(begin, time.perf_counter_ns())
    sampler.stop()
    assert set(table.series("n1/gpu0", "temperature_c").values) == {40.0}
    assert set(table.series("engine-1", "requests_waiting").values) == {3.0}
    assert (one.closed, other.closed) == (True, True)


def test_a_source_that_hangs_gives_a_reason_and_ends_no_run(tmp_path):
    release = threading.Event()

    def hang():
        release.wait(60)
        return []

    stuck, steady = Scripted(hang), Scripted(lambda: [reading(1.0, entity="n2/gpu0")], "steady")
    sampler = Sampler([stuck, steady], tmp_path / "parts", interval_s=0.02, timeout_s=0.1)
    begin = time.perf_counter_ns()
    sampler.start()
    found = until(
        lambda: sampler.window(begin, time.perf_counter_ns()).series("n1/gpu0", "temperature_c").reasons
    )
    assert found[0][0] == Reason.TIMEOUT
    assert "has not answered" in found[0][1]
    until(lambda: steady.polls > 10)
    assert sampler.last_sample_ns > begin
    sampler.stop()
    release.set()


def test_a_source_that_breaks_is_a_reason_and_goes_on(tmp_path):
    answers = iter([RuntimeError("boom")])

    def broken():
        for error in answers:
            raise error
        return [reading(7.0)]

    sampler = Sampler([Scripted(broken)], tmp_path / "parts", interval_s=0.02)
    begin = time.perf_counter_ns()
    sampler.start()
    series = until(
        lambda: (
            (s := sampler.window(begin, time.perf_counter_ns()).series("n1/gpu0", "temperature_c"))
            and len(s.present)
            and s
        )
    )
    sampler.stop()
    assert series.reasons[0][0] == Reason.INSTRUMENT
    assert "boom" in series.reasons[0][1]


def test_what_was_written_to_disk_is_in_the_window_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_module, "_KEPT_READINGS", 10)
    sampler = Sampler([], tmp_path / "parts", interval_s=0.1)
    for second in range(50):
        sampler.take([reading(float(second), t_ns=second * SECOND)])
        if second % 7 == 0:
            sampler.flush()
    sampler.flush()
    series = sampler.window(3 * SECOND, 40 * SECOND).series("n1/gpu0", "temperature_c")
    assert list(series.values) == [float(second) for second in range(3, 41)]
    assert list(series.t_ns) == [second * SECOND for second in range(3, 41)]
    late = sampler.window(45 * SECOND, 60 * SECOND).series("n1/gpu0", "temperature_c")
    assert list(late.values) == [45.0, 46.0, 47.0, 48.0, 49.0]
    assert len(sampler._recent) <= 10


def test_seventy_two_hours_need_no_more_memory_than_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_module, "_KEPT_READINGS", 2_000)
    sampler = Sampler([], tmp_path / "parts", interval_s=0.2)
    fields = [name for name in CARD_FIELDS if name != "last_xid"]
    held = []
    for step in range(72 * 60 * 2):  # a poll each half minute
        at_ns = step * 30 * SECOND
        sampler.take([reading(float(step % 7), name, t_ns=at_ns) for name in fields[:12]])
        if len(sampler._recent) - sampler._written > sampler_module._KEPT_READINGS:
            sampler.flush()
        if step % 1440 == 1439:
            held.append(len(sampler._recent))
    assert max(held) <= 2 * sampler_module._KEPT_READINGS + len(fields)
    assert len(sampler._thinning._kept) <= len(fields)
    early = sampler.window(0, 3600 * SECOND).series("n1/gpu0", fields[0])
    late = sampler.window(71 * 3600 * SECOND, 72 * 3600 * SECOND).series("n1/gpu0", fields[0])
    assert min(len(early.present), len(late.present)) >= 120


def test_a_slow_counter_reaches_back_to_its_last_value(tmp_path):
    sampler = Sampler([], tmp_path / "parts", interval_s=0.1)
    for second in range(20):
        value = 5.0 if second < 12 else 9.0
        sampler.take([reading(value, "pcie_replays", t_ns=second * SECOND)])
    kept = sampler.window(0, 20 * SECOND).series("n1/gpu0", "pcie_replays")
    assert list(kept.t_ns // SECOND) == [0, 5, 10, 11, 12, 17, 19]
    series = sampler.window(11 * SECOND, 14 * SECOND).series("n1/gpu0", "pcie_replays")
    assert series.values[-1] - series.values[0] == 4.0


def test_an_unchanged_counter_is_known_to_the_end_of_a_short_window(tmp_path):
    sampler = Sampler([], tmp_path / "parts", interval_s=0.1)
    for tenth in range(30):
        sampler.take([reading(5.0, "pcie_replays", t_ns=tenth * SECOND // 10)])
    series = sampler.window(SECOND, 2 * SECOND).series("n1/gpu0", "pcie_replays")
    assert list(series.t_ns) == [0, round(2.15 * SECOND)]
    assert list(series.values) == [5.0, 5.0]


def test_an_unchanged_counter_that_is_written_again_after_a_window_was_so_at_its_end():
    thinning = Thinning()
    for at_s in (0, 1, 2, 3, 4, 5):  # written at 0 and again at 5
        thinning.keep([reading(7.0, "pcie_replays", t_ns=at_s * SECOND)])
    assert [(one.value, one.t_ns) for one in thinning.settled(0, 3 * SECOND)] == [(7.0, 3 * SECOND)]
    thinning.keep([reading(8.0, "pcie_replays", t_ns=6 * SECOND)])
    assert thinning.settled(0, 3 * SECOND) == []


@given(
    polls=st.lists(
        st.tuples(st.integers(1, 90), st.sampled_from((1.0, 1.0, 1.0, 2.0, None)), st.booleans()),
        min_size=1,
        max_size=60,
    )
)
def test_whoever_asks_again_later_from_disk_sees_what_was_seen(polls):
    with tempfile.TemporaryDirectory() as folder:
        sampler = Sampler([], Path(folder), interval_s=0.25)
        now_ns, asked = 0, []
        for tenths, value, asks in polls:
            now_ns += tenths * SECOND // 10
            sampler.take(
                [reading(value, "pcie_replays", t_ns=now_ns, reason=None if value else Reason.TIMEOUT)]
            )
            if asks:
                start, end = max(0, now_ns - 8 * SECOND), now_ns - SECOND // 5
                seen = sampler.window(start, end, seen_ns=now_ns).series("n1/gpu0", "pcie_replays")
                asked.append((start, end, now_ns, seen))
                sampler.flush()
        sampler.stop()
        for start, end, seen_ns, seen in asked:
            table = telemetry_window(Path(folder), start, end, 0.25, seen_ns)
            again = table.series("n1/gpu0", "pcie_replays")
            assert list(seen.t_ns) == list(again.t_ns)
            assert np.array_equal(seen.values, again.values, equal_nan=True)


def test_a_counter_that_changes_is_kept_as_it_was_until_then():
    thinning = Thinning()
    kept = []
    for at_s, value in ((0, 7.0), (1, 7.0), (2, 7.0), (3, 9.0), (4, 10.0)):
        kept += thinning.keep([reading(value, "pcie_replays", t_ns=at_s * SECOND)])
    assert [(one.value, one.t_ns // SECOND) for one in kept] == [(7.0, 0), (7.0, 2), (9.0, 3), (10.0, 4)]


def test_an_optional_field_without_a_value_is_said_now_and_then():
    thinning = Thinning()
    seconds = [
        second
        for second in range(100)
        if thinning.keep([reading(None, "fan_pct", t_ns=second * SECOND, reason=Reason.UNSUPPORTED)])
    ]
    assert seconds == [0, 30, 60, 90]
    required = [thinning.keep([reading(None, "power_w", t_ns=second)]) for second in range(5)]
    assert all(required)


def test_a_fast_field_that_had_a_value_counts_every_missing_sample():
    thinning = Thinning()
    thinning.keep([reading(50.0, "memory_temperature_c", t_ns=0)])
    later = [thinning.keep([reading(None, "memory_temperature_c", t_ns=n)]) for n in (1, 2, 3)]
    assert [len(kept) for kept in later] == [1, 1, 1]


def test_every_signal_of_a_card_that_is_lost_is_lost_with_it():
    thinning = Thinning()
    for field in (*REQUIRED, "memory_temperature_c", "pcie_replays"):
        thinning.keep([reading(1.0, field, t_ns=0), reading(1.0, field, t_ns=0, entity="n1/gpu1")])
    gone = [reading(None, field, t_ns=1, reason=Reason.UNREACHABLE, detail="refused") for field in REQUIRED]
    kept = thinning.keep(gone)
    lost = {one.field for one in kept if one.value is None}
    assert lost == {*REQUIRED, "memory_temperature_c", "pcie_replays"}
    assert {one.entity for one in kept} == {"n1/gpu0"}
    assert {(one.reason, one.detail) for one in kept if one.value is None} == {
        (Reason.UNREACHABLE, "refused")
    }


def test_a_card_that_lost_some_of_what_is_required_still_has_the_rest():
    thinning = Thinning()
    thinning.keep([reading(1.0, "memory_temperature_c", t_ns=0)])
    kept = thinning.keep([reading(None, field, t_ns=1, reason=Reason.BLANK) for field in REQUIRED[1:]])
    assert "memory_temperature_c" not in {one.field for one in kept}


def test_a_table_is_the_same_after_disk(tmp_path):
    rows = [
        reading(41.5, t_ns=2),
        reading(None, "power_w", t_ns=1, reason=Reason.BLANK, detail="it is blank"),
        reading(40.0, t_ns=1),
    ]
    table = TelemetryTable.from_readings(rows)
    table.write(tmp_path / "part.parquet")
    read = TelemetryTable.read(tmp_path / "part.parquet")
    assert read.readings == tuple(rows)
    assert list(read.series("n1/gpu0", "temperature_c").values) == [40.0, 41.5]
    assert read.series("n1/gpu0", "power_w").why_missing == (Reason.BLANK, "it is blank")
    assert read.latest("n1/gpu0")["temperature_c"].value == 41.5
    assert (read.entities, read.fields("n1/gpu0")) == (("n1/gpu0",), ("power_w", "temperature_c"))


def test_a_signal_that_was_never_read_says_so():
    empty = TelemetryTable.from_readings([]).series("n1/gpu0", "power_w")
    assert empty.why_missing[0] == Reason.ABSENT
    assert np.isnan(empty.values).all()


def test_a_node_stands_for_its_exporter(tmp_path):
    card = Card(name="n1/gpu0", node="n1", index=0)
    node = Node(name="n1", cards=(card,), exporter_url="http://127.0.0.1:9/metrics")
    sampler = Sampler([node], tmp_path / "parts", interval_s=0.02)
    begin = time.perf_counter_ns()
    sampler.start()
    reasons = until(
        lambda: sampler.window(begin, time.perf_counter_ns()).series("n1/gpu0", "power_w").reasons
    )
    sampler.stop()
    assert reasons[0][0] == Reason.UNREACHABLE


@pytest.mark.parametrize("field", REQUIRED)
def test_a_node_without_an_exporter_says_that_none_is_declared(field):
    source = ExporterSource(Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0),)))
    found = {one.field: one for one in source.poll()}
    source.close()
    assert (found[field].reason, found[field].unit) == (Reason.NOT_CONFIGURED, FIELDS[field])
