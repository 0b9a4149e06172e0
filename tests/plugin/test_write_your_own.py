"""What docs/extending.md shows under "Write your own", cut out of it and run on the simulated rack."""

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "engines" / "tiny_engine.py"
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
OWN = PAGE.split("## Write your own\n", 1)[1].split("\n## ", 1)[0]

TOO_MUCH = """
[[slo]]
id = "single_card.long_answers"
load = "interactive"
metric = "answer_tokens"
op = ">="
bound = 1e6
unit = "tokens"
scope = "card"
source = "nobody"
"""

LAUNCH = """

@pytest.mark.rack_acceptance
@pytest.mark.rack_stage("preflight")
@pytest.mark.parametrize("fault", ["none", "no_such_fault"])
def test_srun(rack_engine, rack_fault, fault):
    from rackgate.engines.launchers.ports import free_port

    port = free_port("127.0.0.1")
    command = [{python!r}, {engine!r}, "--port", str(port), "--fault", fault]
    url = f"http://127.0.0.1:{{port}}"
    engine = rack_engine("srun", model="tiny", url=url, cards=["node1/gpu0"], command=command)
    with rack_fault("pause", engine):
        pass
"""


@pytest.fixture
def written(pytester, monkeypatch):
    """Write the files of the page, and an `srun` that starts its command on this machine."""
    pytester.makeconftest("")
    files = {}
    for block in re.findall(r"(?ms)^```(?:python|toml)\n(.*?)^```", OWN):
        files.setdefault(re.match(r"# (\S+)\n", block)[1], []).append(block)
    assert {"agreed.toml", "accept/conftest.py", "accept/test_ours.py"} == set(files)
    assert [] == [block for blocks in files.values() for block in blocks if block.count("\n") >= 30]
    pytester.mkdir("accept")
    for name, blocks in files.items():
        pytester.path.joinpath(name).write_text("\n\n".join(blocks), encoding="utf-8")
    srun = pytester.mkdir("bin") / "srun"
    srun.write_text('#!/bin/sh\n[ "$1" = --nodelist=node1 ] && shift && exec "$@"\n', encoding="utf-8")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(srun.parent), prepend=":")
    return pytester.path


def test_row_metric_test_fault_and_report_of_readme_run(written, run):
    agreed = written / "agreed.toml"
    agreed.write_text(agreed.read_text(encoding="utf-8") + TOO_MUCH, encoding="utf-8")
    outcome = run(
        *("--pyargs", "rackgate_suites", "accept", "-m", "rack_acceptance"),
        *("-k", "answer_tokens or long_answers or test_ours"),
        *("--rack-target", "sim:1x1", "--rack-stage", "preflight,single_card,fault_injection"),
        *("--rack-slo", "agreed.toml", "--rack-out", "run"),
    )
    assert " 1 failed, 3 passed" in outcome.text, outcome.text
    held, broken = "single_card.answer_tokens @ node1/gpu0", "single_card.long_answers @ node1/gpu0"
    assert (1, {held: "PASS", broken: "FAIL"}) == (outcome.exit_code, outcome.verdicts)
    assert f"FAIL {broken}: 16 tokens, agreed >= 1e+06 tokens" in outcome.text
    verdicts = outcome.of("verdict")
    assert {"Median of the output tokens of a load's answers."} == {one["definition"] for one in verdicts}
    rows = [f'"{one["check"]}",{one["verdict"]},{one["value"]}' for one in verdicts]
    csv = (outcome.folder / "views" / "default" / "verdicts.csv").read_text(encoding="utf-8")
    assert ["check,verdict,value", *rows] == csv.splitlines()
    moments = [(one["fault"], one["moment"]) for one in outcome.of("fault") if one["ok"]]
    assert [("pause", step) for step in ("intend", "inject", "prove", "heal", "prove_healed")] == moments


def test_the_launcher_of_readme_starts_an_engine_and_says_why_it_does_not(written, run):
    ours = written / "accept" / "test_ours.py"
    launch = LAUNCH.format(python=sys.executable, engine=str(TINY))
    ours.write_text(ours.read_text(encoding="utf-8") + launch, encoding="utf-8")
    asked = ("--rack-target", "sim:1x1", "--rack-stage", "preflight", "--rack-out", "run")
    outcome = run("accept", "-m", "rack_acceptance", "-k", "test_srun", *asked)
    assert " 2 failed" in outcome.text, outcome.text
    assert "TypeError: engine engine (srun) cannot be paused from here" in outcome.text
    assert "LaunchFailed: no token from engine" in outcome.text
    log = (outcome.folder / "evidence" / "logs" / "engine.log").read_text(encoding="utf-8")
    assert "argument --fault: invalid choice: 'no_such_fault'" in log
