"""The kill of a container, judged on the survivors through a real gateway that does not route around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "docker-two-engines.toml"
CARE = (
    "    retries 2\n",
    "    option redispatch 1\n",
    "    retry-on conn-failure empty-response\n",
    "    default-server check inter 250ms fall 2 rise 1\n",
)

pytestmark = [pytest.mark.docker, pytest.mark.proof]


@pytest.fixture(scope="module")
def images():
    """Make sure that a daemon answers and has the images; fails, and never skips, without them."""
    for script in ("start_docker.sh", "build.sh"):
        done = subprocess.run(
            ["sh", str(ROOT / "tests" / "images" / script)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "PYTHON": sys.executable},
        )
        if done.returncode:
            pytest.fail(f"the Docker tests cannot run: {done.stderr.strip()[-2000:]}", pytrace=False)


def test_a_gateway_without_health_checks_fails_the_survivors(images, run_ladder, tmp_path):
    text = EXAMPLE.read_text()
    for line in CARE:
        assert line in text
        text = text.replace(line, "    retries 0\n" if "retries" in line else "")
    (tmp_path / "careless.toml").write_text(text)
    outcome = run_ladder(
        f"--rack-target={tmp_path / 'careless.toml'}", "--rack-stage=preflight,fault_injection"
    )
    assert 1 == outcome.exit_status, outcome.output[-4000:]
    verdicts = {one["slo"]: one for one in outcome.of("verdict") if one["stage"] == "fault_injection"}
    failed = {slo for slo, one in verdicts.items() if one["verdict"] == "FAIL"}
    assert {"fault_injection.kill_error_rate", "fault_injection.survivor_error_rate"} <= failed
    assert verdicts["fault_injection.survivor_error_rate"]["value"] > 0.1
    assert "PASS" == verdicts["fault_injection.kill_healed"]["verdict"]
    looked = [one for one in outcome.of("verdict") if one["stage"] == "preflight" and not one["skipped"]]
    assert {"PASS"} == {one["verdict"] for one in looked}
