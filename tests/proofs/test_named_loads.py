"""A row may be about any load: a class of work that ships, or one of the site's own; its stage offers it."""

import pytest

from rackgate.config.acceptance_file import workloads

ROWS = """
[load.assistant]
looks = [16]
prompt_tokens = 32
output_tokens = 4
prompt_spread = { shape = "uniform", deviation = 8.0 }
output_spread = { shape = "uniform", deviation = 1.0 }
reason = "a test has seconds"

[load.embedding]
looks = [12]
reason = "a test has seconds"

[load.mine]
prompt_tokens = 12
output_tokens = 3
concurrency = 2
looks = [10]
"""
LOADS = (("assistant", 16), ("embedding", 12), ("mine", 10))
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
    file.write_text(ROWS + "".join(ROW.format(load=load) for load, _ in LOADS))
    outcome = run_ladder("--rack-target=sim:1x2", "--rack-stage=single_card", f"--rack-slo={file}")
    for load, requests in LOADS:
        verdicts = outcome.verdicts(f"single_card.{load}_errors")
        assert ["PASS", "PASS"] == [one["verdict"] for one in verdicts.values()], outcome.output[-3000:]
        (record,) = [one for one in outcome.of("load") if one["load"] == load]
        assert {"ok": 2 * requests} == record["counters"]["outcomes"]
    # Nobody asked for the others.
    assert {"assistant", "embedding", "mine", "interactive", "repeats"} == {
        one["load"] for one in outcome.of("load")
    }


@pytest.mark.proof
def test_what_exceeds_the_engines_context_is_not_offered_and_the_instrument_is_measured_at_size(
    run_ladder, tmp_path
):
    file, trace = tmp_path / "rows.toml", tmp_path / "b.csv"
    trace.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,9,2,11,A\n5.1,ChatGPT,9,0,9,A\n5.2,ChatGPT,8,2,10,A\n"
    )
    loads = """
[load.long]
prompt_tokens = 32000
output_tokens = 1000
concurrency = 45
looks = [10]

[load.replay]
prompt_tokens = 8
output_tokens = 2
arrival = "trace"
trace = "{trace}"
"""
    rows = ROW.format(load="long") + ROW.format(load="replay")
    file.write_text(loads.format(trace=trace) + rows)
    stages = "--rack-stage=selfcheck,single_card"
    outcome = run_ladder("--rack-target=sim:1x2", stages, f"--rack-slo={file}")
    for one in outcome.verdicts("single_card.long_errors").values():
        assert ("UNKNOWN", "not_configured") == (one["verdict"], one["reason"])
        assert "33000 tokens of prompt and output exceed the model's context of 32768" in one["detail"]
        assert "(so says /v1/models): nothing was offered" in one["detail"]
    assert {"PASS"} == {one["verdict"] for one in outcome.verdicts("single_card.replay_errors").values()}
    events = {one["event"]: one["text"] for one in outcome.of("event")}
    assert "single_card: load replay: 1 of 3 left out: failed requests" == events["trace_left_out"]
    assert "about 90 at once; load long has 90" in events["reference_load"]
    (reference,) = [one for one in outcome.of("load") if one["stage"] == "selfcheck"]
    assert reference["peak_in_flight"] > 60


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
