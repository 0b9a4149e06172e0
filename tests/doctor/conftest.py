"""Makes the servers and the driver's stand-in importable here."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nvml"))
sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))

from local_server import Answer, serving
from nvml_stand_in import StandIn, compiled

from rackgate.checks.plan import plan_checks
from rackgate.doctor.forecast import forecast, tools_of
from rackgate.doctor.snapshot import take_snapshot
from rackgate.metrics.shipped import shipped_registry

METRICS = shipped_registry().metrics

PAGE = """\
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 40
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 300
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a"} 1980
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0",UUID="GPU-a"} 0
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stand_in(tmp_path, library, monkeypatch):
    made = StandIn(tmp_path, library, 2)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def registry():
    return shipped_registry()


@pytest.fixture
def forecasts(registry):
    """Return the forecast of each row named, by check, for a target."""

    def found(target, slos, deadline_s=8.0):
        checks = plan_checks(target, slos, metrics=METRICS, probes={})
        snapshot = take_snapshot(target, tools_of(checks, registry.metrics), deadline_s)
        return {one.check.id: one for one in forecast(checks, registry.metrics, snapshot)}

    return found


@pytest.fixture
def page():
    """Serve one page, at `/metrics` and everywhere else."""
    with serving(lambda _: Answer(200, PAGE)) as url:
        yield f"{url}/metrics"


@pytest.fixture
def engine():
    """Serve the list of one model."""
    listed = json.dumps({"object": "list", "data": [{"id": "m"}]})
    with serving(lambda _: Answer(200, listed)) as url:
        yield url
