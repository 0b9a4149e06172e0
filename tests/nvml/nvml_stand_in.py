"""The stand-in for the driver's library, compiled and fed by the tests."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackgate.nouns.node import Card, Node

SOURCE = Path(__file__).with_name("libnvidia-ml.c")

CARD = {
    "temperature": 41,
    "margin": 46,
    "power_mw": 412100,
    "pstate": 0,
    "power_limit_mw": 700000,
    "energy_mj": 5000000,
    "sm_clock": 1980,
    "memory_clock": 2619,
    "reasons": 0,
    "utilisation": 97,
    "memory_utilisation": 30,
    "memory_total": 141 << 30,
    "memory_used": 100 << 30,
    "mig": 0,
    "ecc": 1,
    "ecc_0_0": 0,
    "ecc_0_1": 0,
    "ecc_1_0": 3,
    "ecc_1_1": 0,
    "remapped": "1 0 0 0",
    "pcie_gen": 5,
    "pcie_gen_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 2,
    "links": 18,
    "persistence": 1,
    "board": 6912,
    "threshold.1": 87,
    "fabric_state": 3,
    "clique": 4026,
    "cluster": "9c6f5af3000040008000000000000001",
    "field.82": 55,
    "field.83": 5000000,
    "field.186": 420000,
    "field.74": 1000,
    "field.76": 0,
    "field.269": 0,
    "field.270": 0,
    "field.271": 0,
    "field.221": 0,
    "field.230": 0,
}


class StandIn:
    """The stand-in's state; every change is on disk, whole, when it returns."""

    def __init__(self, folder, library, count):
        self.path = folder / "state"
        self.library = library
        self.writes = 0
        self.values = {"driver": "580.82.07", "library": "13.580.82.07", "cuda": 13000, "cards": count}
        self.events = []
        for index in range(count):
            self.card(
                index,
                **CARD,
                uuid=uuid_of(index),
                serial=f"15{index:011d}",
                name="NVIDIA H200",
                part="900-21010",
                vbios="96.00.AF",
                pci=f"00000000:{0x1B + 16 * index:02X}:00.0",
            )

    @property
    def environment(self):
        return {"LD_LIBRARY_PATH": str(self.library), "NVML_STANDIN_STATE": str(self.path)}

    def card(self, index, **values):
        self.set(**{f"{index}.{name}": value for name, value in values.items()})

    def set(self, **values):
        self.values.update(values)
        self._write()

    def remove(self, *names):
        for name in names:
            self.values.pop(name)
        self._write()

    def xid(self, index, code):
        self.events.append(f"xid {index} {code}")
        self._write()

    def _write(self):
        fresh = self.path.with_suffix(".new")
        lines = [f"{name} {value}" for name, value in self.values.items() if value is not None]
        fresh.write_text("\n".join([*lines, *self.events]) + "\n")
        os.replace(fresh, self.path)  # noqa: PTH105
        self.writes += 1
        with Path(f"{self.path}.writes").open("r+b" if self.writes > 1 else "wb") as told:
            told.write(self.writes.to_bytes(4, sys.byteorder))


def uuid_of(index):
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def compiled(folder, *flags):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.fail("the stand-in needs a C compiler")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", *flags, "-o", library, SOURCE, "-lpthread"]
    subprocess.run(command, check=True, timeout=120)
    return folder


def node_of(count, **identity):
    cards = tuple(
        Card(name=f"n1/gpu{index}", node="n1", index=index, uuid=uuid_of(index), **identity)
        for index in range(count)
    )
    return Node(name="n1", cards=cards)


def by_field(readings, entity="n1/gpu0"):
    return {one.field: one for one in readings if one.entity == entity}


def until(condition, deadline_s=15.0):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")
