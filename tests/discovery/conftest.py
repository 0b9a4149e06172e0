"""Makes the stand-in of the driver's library and the small HTTP server importable here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nvml"))
sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))

from nvml_stand_in import StandIn, compiled


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stand_in(tmp_path, library):
    return StandIn(tmp_path, library, 2)


@pytest.fixture
def folder(tmp_path):
    """An empty folder that stands in for a machine."""
    made = tmp_path / "machine"
    (made / "commands").mkdir(parents=True)
    return made


@pytest.fixture
def pci(folder):
    """Put a device on the bus of the folder's machine."""

    def put(address, vendor, kind):
        device = folder / "sys" / "bus" / "pci" / "devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")

    return put
