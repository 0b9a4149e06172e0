"""The GPU-* field cases: each input gives what `expected.json` says."""

import json
import sys
import threading
import time
from pathlib import Path

import pytest
from pynvml import NVMLError

from rackgate.telemetry.clock_events import clock_event_names
from rackgate.telemetry.dcgm import is_blank, samples_by_card
from rackgate.telemetry.fabric import FabricCard, judge_fabric
from rackgate.telemetry.nvml import (
    card_signals,
    clock_event_reasons,
    memory,
)
from rackgate.telemetry.redfish import read_sensor
from rackgate.telemetry.smi import ask_smi, driver_problem, lost_cards, parse_query
from rackgate.verdict import Verdict

CASES = Path(__file__).parents[1] / "cases"
EXPECTED = {
    name: case["expected"] for name, case in json.loads((CASES / "expected.json").read_text()).items()
}
THROTTLE_MASK = 0xE8


def text(name):
    return (CASES / "inputs" / name).read_text()


def samples(page):
    from rackgate.telemetry.dcgm import _samples

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


def test_gpu_03_the_sentence_is_the_finding():
    found = lost_cards(text("GPU-03.txt"))
    for fault, expected in zip(found, EXPECTED["GPU-03"]["faults"], strict=True):
        assert (fault.kind, fault.pci) == (expected["kind"], expected["bdf"])
        assert "raw" not in expected or fault.raw == expected["raw"]


def test_gpu_04_a_broken_driver_is_not_no_gpu():
    from rackgate.telemetry.host import driver_mismatch

    expected = EXPECTED["GPU-04"]
    assert driver_problem(text("GPU-04a.txt")) == expected["a"]["class"]
    assert driver_problem(text("GPU-04b.txt")) == expected["b"]["class"]
    versions = driver_mismatch(text("GPU-04a.proc_driver_nvidia_version.txt"), text("GPU-04a.txt"))
    assert versions == (expected["a"]["kernel_module"], expected["a"]["library"])


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


def fabric_cards(rows):
    return [
        FabricCard(
            card=f"GPU {row['gpu']}",
            state=row["state"].lower().replace(" ", "_"),
            cluster_uuid=row["cluster_uuid"],
            clique=row["clique_id"],
        )
        for row in rows
    ]


def test_gpu_09_a_domain_is_cluster_and_clique():
    cases, expected = json.loads(text("GPU-09.json")), EXPECTED["GPU-09"]
    tray = judge_fabric(fabric_cards(cases["tray"]))
    assert tray.domains == expected["tray"]["domains"]
    assert (tray.verdict, tray.outside) == (Verdict.FAIL, ("GPU 3",))
    single = judge_fabric(fabric_cards(cases["single"]))
    assert (single.verdict, "not applicable" in single.text) == (None, True)
    unsupported = judge_fabric([*fabric_cards(cases["tray"])[:3], *fabric_cards(cases["single"])])
    assert unsupported.verdict == Verdict.FAIL


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
    pages = samples_by_card(samples(text("GPU-15.prom")))
    per_card = {card: page.values["DCGM_FI_DEV_POWER_USAGE"] for card, page in pages.items()}
    assert per_card == EXPECTED["GPU-15"]["per_gpu"]
    assert sum(per_card.values()) == EXPECTED["GPU-15"]["rack_power_w"]


def test_gpu_19_a_sensor_without_a_reading_has_a_state():
    found = {body["Name"]: read_sensor(body) for body in json.loads(text("GPU-19.json"))}
    assert EXPECTED["GPU-19"] == {
        name: {"value": sensor.value, "state": sensor.state} for name, sensor in found.items()
    }


def test_gpu_21_a_hanging_command_is_left_alone(tmp_path):
    script = CASES / "inputs" / "GPU-21-nvidia-smi"
    begin, before = time.monotonic(), threading.active_count()
    answer = ask_smi(["sh", str(script)], 0.3)
    assert (answer.hung, answer.problem) == (True, "driver_unresponsive")
    assert time.monotonic() - begin < 30
    left = [one for one in threading.enumerate() if not one.daemon]
    assert len(left) <= before


def test_a_missing_tool_and_an_ordinary_answer_are_told_apart():
    assert ask_smi(["/nonexistent/nvidia-smi"], 5.0).problem == "tool_missing"
    answer = ask_smi([sys.executable, "-c", "print('fine')"], 60.0)
    assert (answer.text.strip(), answer.status, answer.problem) == ("fine", 0, "")


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


def test_con_09_a_container_that_lost_its_cards_is_no_hardware_fault():
    from rackgate.telemetry.smi import compare_views, listed_cards

    raw, expected = json.loads(text("CON-09.json")), EXPECTED["CON-09"]
    host, container = raw["host"]["out"], raw["container"]["out"]
    assert len(listed_cards(host)) == expected["host_gpus"]
    assert len(listed_cards(container)) == expected["container_gpus"]
    assert compare_views(host, container) == expected["class"]
    assert compare_views(container, container) == "host_lost_gpu"
    assert compare_views(host, host) == ""
