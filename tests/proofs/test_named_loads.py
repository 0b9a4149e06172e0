"""A row may be about any load: a class of work that ships, or one of the site's own; its stage offers it."""

import pytest

from rackgate.config.workloads import workloads

ROWS = """
[load.assistant]
looks = [16]
prompt_tokens = 32
output_tokens = 4
prompt_spread = { shape = "uniform", deviation = 8.0 }
output_spread = { shape = "uniform", deviation = 1.0 }
reason = "a test has seconds"

[load.mine]
prompt_tokens = 12
output_tokens = 3
concurrency = 2
looks = [10]
"""
ROW = """
[[slo]]
id = "single_card.{load}_errors"
load = "{load}"
metric = "error_rate"
op = "<="
bound = 0.0
unit = "ratio"
scope = "engine"
source = "test"
"""


@pytest.mark.proof
def test_a_stage_offers_every_load_that_its_rows_name(run_ladder, tmp_path):
    file = tmp_path / "rows.toml"
    file.write_text(ROWS + ROW.format(load="assistant") + ROW.format(load="mine"))
    outcome = run_ladder("--rack-target=sim:1x2", "--rack-stage=single_card", f"--rack-slo={file}")
    for load, requests in (("assistant", 16), ("mine", 10)):
        verdicts = outcome.verdicts(f"single_card.{load}_errors")
        assert ["PASS", "PASS"] == [one["verdict"] for one in verdicts.values()], outcome.output[-3000:]
        (record,) = [one for one in outcome.of("load") if one["load"] == load]
        assert {"ok": 2 * requests} == record["counters"]["outcomes"]
    # Nobody asked for the others.
    assert {"assistant", "mine", "interactive", "repeats"} == {one["load"] for one in outcome.of("load")}


def test_the_classes_of_work_ship_as_loads_that_can_be_offered():
    assert ["assistant", "audio_video", "batch", "embedding", "long_context"] == sorted(workloads())
    for name, load in workloads().items():
        assert (name, ()) == (load.workload, load.problems)
    assert "openai_embeddings" == workloads()["embedding"].protocol


@pytest.mark.parametrize("stage", ["selfcheck", "fault_injection"])
def test_a_row_about_a_load_that_its_stage_never_offers_is_refused(run_pytest, tmp_path, stage):
    file = tmp_path / "rows.toml"
    file.write_text(ROW.format(load="assistant").replace("single_card", stage))
    done = run_pytest("--rack-target=sim", f"--rack-slo={file}")
    assert 4 == done.returncode
    assert f"load: 'assistant', but stage {stage} offers" in done.stdout + done.stderr
