"""The GPU-* field cases: each input gives what `expected.json` says."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from host_machine import machine
from pynvml import NVMLError

from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import LocalRunner, Ran
from rackgate.hosts.tools.nvidia_smi import lost_cards, parse_query
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Expect, Node
from rackgate.preflight.driver import probe_domains
from rackgate.preflight.host_findings import probe_hosts
from rackgate.preflight.nodes import measured_cards
from rackgate.telemetry.cards.clock_events import clock_event_names
from rackgate.telemetry.cards.dcgm_exporter_page import is_blank, parse_page, samples_by_card
from rackgate.telemetry.cards.nvidia_smi_source import SmiSource
from rackgate.telemetry.cards.nvml import (
    card_signals,
    clock_event_reasons,
    memory,
)
from rackgate.telemetry.chassis.redfish import read_sensor

CASES = Path(__file__).parents[2] / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}
THROTTLE_MASK = 0xE8


def text(name):
    return (CASES / "inputs" / name).read_text()


def samples(page):
    from rackgate.telemetry.cards.dcgm_exporter_page import _samples

    return list(_samples(page))


class Library:
    """NVML's functions by name; a number that stands for an error is raised."""

    def __init__(self, answers):
        self._answers = answers

    def __getattr__(self, name):
        if name not in self._answers:
            raise AttributeError(name)
        answer = self._answers[name]

        def call(*_):
            if isinstance(answer, NVMLError):
                raise answer
            return answer

        return call


def answered(raw):
    if isinstance(raw, str) and "(" in raw:
        return NVMLError(int(raw.split("(")[1].rstrip(")")))
    return raw


class Info:
    def __init__(self, **values):
        self.__dict__.update(values)


def test_gpu_01_unified_memory_is_neither_zero_nor_a_fault():
    expected = EXPECTED["GPU-01"]
    row = parse_query(text("GPU-01.csv"))[0]
    columns = {
        "memory_total": "memory.total",
        "memory_used": "memory.used",
        "utilization_gpu": "utilization.gpu",
        "power_w": "power.draw",
        "temp_c": "temperature.gpu",
    }
    assert expected["csv"] == {name: row.number(column) for name, column in columns.items()}
    assert row.state == "ok"
    cases = json.loads(text("GPU-01.nvml.json"))
    for name, case in cases.items():
        answer = case["nvmlDeviceGetMemoryInfo"]
        given = NVMLError(3) if answer["return"] else Info(**answer)
        used, total, unified = memory(
            Library({"nvmlDeviceGetMemoryInfo": given}), None, case["MemTotal_kB"] * 1024
        )
        assert unified == expected[f"nvml_{name}"]["unified"]
        assert (used.value, total.value) == (None, None)
        assert "unified memory" in used.detail


def test_gpu_02_a_word_in_a_numeric_column_stops_no_other_row():
    columns = text("GPU-02.query.txt").split("=")[1].split()[0].split(",")
    rows = {
        row.cells["index"].text: {
            "temp": row.number("temperature.gpu"),
            "fan": row.number("fan.speed"),
            "power": row.number("power.draw"),
            "state": row.state,
        }
        for row in parse_query(text("GPU-02.csv"), columns)
    }
    for index, expected in EXPECTED["GPU-02"]["rows"].items():
        assert expected == {name: rows[index][name] for name in expected}


def node_of(*, pci=(), cards=1, uuids=()):
    names = dict(enumerate(pci))
    return Node(
        name="n1",
        cards=tuple(
            Card(
                name=f"n1/gpu{index}",
                node="n1",
                index=index,
                pci=names.get(index),
                uuid=dict(enumerate(uuids)).get(index),
            )
            for index in range(len(pci) or len(uuids) or cards)
        ),
        expect=Expect(fabric=True),
    )


class Says:
    """A node whose every command says the same."""

    name = "n1"

    def __init__(self, said):
        self._said = said

    def run(self, *_):
        return Ran(text=self._said, status=15)

    def close(self):
        """Nothing is held."""


def test_gpu_03_the_sentence_is_the_finding_and_the_card_is_lost():
    found = lost_cards(text("GPU-03.txt"))
    for fault, expected in zip(found, EXPECTED["GPU-03"]["faults"], strict=True):
        assert (fault.kind, fault.pci) == (expected["kind"], expected["bdf"])
    node = node_of(cards=3)
    source = SmiSource(node, Says(text("GPU-03.txt")))
    readings = source.poll()
    probes = measured_cards(node, readings, source.listed())
    assert all("0000:02:00.0" in one.detail for one in readings)
    assert {0.0} == {probes["card_present", card.name].value for card in node.cards}


@pytest.mark.parametrize("part", ["a", "b"])
def test_gpu_04_a_broken_driver_is_a_failed_driver_and_not_no_gpu(tmp_path, part):
    expected, said = EXPECTED["GPU-04"][part], text(f"GPU-04{part}.txt")
    module = text("GPU-04a.proc_driver_nvidia_version.txt") if part == "a" else None
    answer = {"commands/nvidia-smi_-q_-x.txt": f"exit 9\n{said}", "proc/driver/nvidia/version": module}
    facts = read_host(machine(tmp_path, **answer))
    if part == "a":
        told = (facts["driver_module"].value, facts["driver_library"].value)
        assert (expected["kernel_module"], expected["library"]) == told
    found = probe_hosts({"n1": facts}, {"n1": HostDemands(cards=8)})["host_driver", "n1"]
    assert found.value == 1.0
    assert ("nothing will start" if part == "a" else expected["class"]) in found.detail
    readings = SmiSource(node_of(), Says(said)).poll()
    assert {Reason.NOT_CONFIGURED} == {one.reason for one in readings}
    assert all(expected["class"] in one.detail for one in readings)


@pytest.mark.parametrize("name", ["old_driver", "new_driver", "neither"])
def test_gpu_06_reasons_are_asked_under_both_names(name):
    calls = {call: answered(raw) for call, raw in json.loads(text("GPU-06.json"))[name].items()}
    expected = EXPECTED["GPU-06"][name]
    asked = clock_event_reasons(Library(calls), None)
    assert asked.value == expected["mask"]
    if asked.value is None:
        assert asked.reason is not None
        return
    assert list(clock_event_names(int(asked.value))) == expected["reasons"]
    assert bool(int(asked.value) & THROTTLE_MASK) == expected["throttled"]


def listing(rows):
    cards = "".join(
        f'<gpu id="00000000:{row["gpu"] + 1:02X}:00.0"><fabric><state>{row["state"]}</state>'
        f"<cliqueId>{row['clique_id']}</cliqueId><clusterUuid>{row['cluster_uuid']}</clusterUuid></fabric></gpu>"
        for row in rows
    )
    return f"<nvidia_smi_log>{cards}</nvidia_smi_log>"


def outside(rows):
    """Return what preflight says of one node with these cards."""
    node = node_of(cards=len(rows))
    found = probe_domains([node], {"n1": {"driver_answer": Fact(listing(rows))}})
    return found["fabric_outside", "n1"]


def test_gpu_09_a_domain_is_cluster_and_clique():
    cases, expected = json.loads(text("GPU-09.json")), EXPECTED["GPU-09"]
    tray = outside(cases["tray"])
    main, other = expected["tray"]["domains"]
    assert (1.0, True) == (tray.value, f"n1/gpu3: {other}; most are in {main}" in tray.detail), tray
    assert outside(cases["single"]).value == 0.0
    single = {**cases["single"][0], "gpu": 3}
    assert outside([*cases["tray"][:3], single]).value == 1.0


def test_gpu_10_mig_has_three_values():
    for row in parse_query(text("GPU-10.csv")):
        expected = EXPECTED["GPU-10"][row.cells["index"].text]
        assert (row.mig, row.number("utilization.gpu")) == (expected["mig"], expected["util"])


def test_gpu_12_every_spelling_of_blank_is_no_value():
    found = {}
    for line in text("GPU-12.prom").splitlines():
        if not line.startswith("#"):
            value = float(line.rsplit(" ", 1)[1])
            found[line.split("{")[0]] = None if is_blank(value) else value
    assert found == EXPECTED["GPU-12"]


def test_gpu_14_one_card_under_any_labels():
    expected = EXPECTED["GPU-14"]
    pages = samples_by_card(samples(text("GPU-14.prom")))
    (page,) = pages.values()
    assert len(pages) == expected["distinct_gpus"]
    seen = (page.samples, page.identity, page.host, page.model)
    assert seen == (expected["samples"], expected["gpu_uuid"], expected["host"], expected["model"])
    link = expected["nvlink_row"]["link"]
    assert (("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT", link) in page.links, page.index) == (
        True,
        expected["nvlink_row"]["gpu"],
    )


def test_gpu_15_repeated_series_are_one_card():
    expected = EXPECTED["GPU-15"]
    node = node_of(uuids=tuple(expected["per_gpu"]))
    readings = [one for one in parse_page(text("GPU-15.prom"), node, 0) if one.field == "power_w"]
    named = {card.name: card.uuid for card in node.cards}
    assert expected["per_gpu"] == {named[one.entity]: one.value for one in readings}
    assert sum(one.value for one in readings) == expected["rack_power_w"]


def test_gpu_19_a_sensor_without_a_reading_has_a_state():
    found = {body["Name"]: read_sensor(body) for body in json.loads(text("GPU-19.json"))}
    assert EXPECTED["GPU-19"] == {
        name: {"value": sensor.value, "state": sensor.state} for name, sensor in found.items()
    }


def test_gpu_21_a_hanging_command_is_left_alone_within_two_seconds(tmp_path, monkeypatch):
    hung = tmp_path / "nvidia-smi"
    hung.write_text(text("GPU-21-nvidia-smi"))
    hung.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node, before = node_of(), threading.active_count()
    source = SmiSource(node, LocalRunner(), deadline_s=0.3)
    begin = time.monotonic()
    readings = source.poll()
    assert time.monotonic() - begin < 0.3 + 2
    assert threading.active_count() == before
    assert {Reason.TIMEOUT} == {one.reason for one in readings}
    assert all("driver unresponsive" in one.detail for one in readings)
    facts = read_host(LocalRunner(), 0.5)
    assert facts["driver_answer"].reason == Reason.TIMEOUT


def test_gpu_23_no_fan_is_no_end_of_the_scrape():
    raw = json.loads(text("GPU-23.json"))
    library = Library(
        {
            "nvmlDeviceGetFanSpeed": answered(raw["nvmlDeviceGetFanSpeed"]),
            "nvmlDeviceGetTemperature": raw["nvmlDeviceGetTemperature"],
            "nvmlDeviceGetPowerUsage": raw["nvmlDeviceGetPowerUsage_mW"],
            "nvmlDeviceGetUtilizationRates": Info(**raw["nvmlDeviceGetUtilizationRates"]),
        }
    )
    found = card_signals(library, None, slow=True)
    expected = EXPECTED["GPU-23"]
    assert found["fan_pct"].value == expected["fan"]
    assert found["temperature_c"].value == expected["temp"]
    assert round(found["power_w"].value, 1) == expected["power_w"]
    assert found["utilisation_pct"].value == expected["util"]
