"""The gauge of the last XID over a load, alone and beside a kernel log."""

import json
from pathlib import Path

import pytest
from tests.telemetry.test_load_metrics import SECOND, WATCH, measured, readings, xid

from rackgate.checks.plan import plan_checks
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node, NodeAccess
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import Target
from rackgate.telemetry.cards.dcgm_exporter_page import parse_page
from rackgate.telemetry.reading import Reading

METRICS = shipped_registry().metrics

CASES = Path(__file__).parents[2] / "cases"


def gauge(*codes):
    return readings("last_xid", list(codes))


@pytest.mark.parametrize(
    ("case", "value", "reason"), [("a", 1.0, None), ("b", None, Reason.UNSUPPORTED), ("c", 1.0, None)]
)
def test_gpu_16_the_last_xid_is_compared_and_never_counted(case, value, reason):
    page = json.loads((CASES / "inputs" / "GPU-16.json").read_text())[case]
    expected = json.loads((CASES / "expected.json").read_text())["GPU-16"]["expected"]
    node = Node(name="n1", cards=(Card(name="n1/gpu0", node="n1", index=0, uuid="GPU-A"),))
    rows = [
        one
        for at_s, text in ((9, page["before"]), (15, page["after"]), (20, page["after"]))
        for one in parse_page(text + "\n", node, at_s * SECOND)
    ]
    found = measured("last_xid_changes", rows)
    assert (found.value, found.reason) == (value, reason)
    new = expected[f"before_{case}_after_{case}"].get("new_xid", 31)
    assert f"XID {new} " in found.detail or f"the last XID was {new}" in found.detail


def test_a_gauge_at_zero_all_along_is_no_xid():
    assert measured("last_xid_changes", gauge(0)).value == 0.0
    assert measured("last_xid_changes", []).reason == Reason.ABSENT


def test_a_code_between_two_zeros_is_seen():
    assert measured("last_xid_changes", gauge(0, 0, 0, 79, 0)).value == 1.0


def test_where_the_kernel_log_is_read_it_decides_what_a_standing_gauge_means():
    assert measured("last_xid_changes", gauge(31)).value is None
    heard = measured("last_xid_changes", [*gauge(31), *WATCH])
    assert (heard.value, "rows of their own" in heard.detail) == (0.0, True)


def test_a_change_that_the_kernel_log_told_is_judged_there():
    rows = [*gauge(0, 0, 0, 43), *WATCH]
    assert measured("last_xid_changes", rows).value == 1.0
    assert measured("last_xid_changes", [*rows, xid(43, at_s=11)]).value == 0.0
    on_node = Reading(11 * SECOND, "n1", "n1", "xid", 43.0, None, "")
    assert measured("last_xid_changes", [*rows, on_node]).value == 0.0
    assert measured("xids_warned", [*rows, xid(43, at_s=11)]).value == 1.0


def test_what_our_own_kill_makes_is_not_counted():
    fault = FaultTimeline(kind="kill", entity="n1/gpu0", injected_ns=10 * SECOND, healed_ns=18 * SECOND)
    assert measured("last_xid_changes", gauge(0, 0, 0, 45), faults=(fault,)).value == 0.0
    assert measured("last_xid_changes", gauge(0, 0, 0, 79), faults=(fault,)).value == 1.0


@pytest.mark.parametrize(("source", "asked"), [("nvml", False), ("nvidia-smi", False), (None, True)])
def test_a_source_without_the_gauge_is_not_asked_for_it(source, asked):
    node = Node(
        name="n1",
        cards=(Card(name="n1/gpu0", node="n1", index=0),),
        access=NodeAccess(local=True, cards=source),
        exporter_url=None if source else "http://127.0.0.1:1",
    )
    rack = Target(name="rack", model="m", grade="accelerator", nodes=(node,), engines=())
    row = Slo(
        id="preflight.last_xid",
        stage="preflight",
        metric="last_xid_changes",
        statistic="value",
        op=Op.EQUAL,
        bound=0.0,
        unit="events",
        scope=Scope.CARD,
        source="test",
    )
    (check,) = plan_checks(rack, [row], metrics=METRICS, probes={})
    assert (check.declared_absent == "") is asked
