import sys
from pathlib import Path

import pytest

from rackgate.telemetry.cards.nvml_source import NvmlSource

sys.path.insert(0, str(Path(__file__).parent))

from nvml_stand_in import StandIn, compiled, node_of


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")


@pytest.fixture
def stand_in(tmp_path, library):
    return StandIn(tmp_path, library, 2)


@pytest.fixture
def source(stand_in):
    opened = NvmlSource(node_of(2), environment=stand_in.environment)
    yield opened
    opened.close()
