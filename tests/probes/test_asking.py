"""Programs are really run: what they say, what they leave out, and how they end."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Scope
from rackgate.probes.commands import command_of, shown_command
from rackgate.probes.measurements import measurements_of
from rackgate.probes.running import busy_cards, run_on_nodes

GOOD = (
    'echo preparing; echo \'{"version": 1, "complete": true, "values": [{"name": "speed",'
    ' "entity": "node", "value": 3.5, "unit": "GB/s"}]}\''
)


def measured(probe, target, entity="node1", node="node1", **facts):
    answers = run_on_nodes(probe, target, [one.name for one in target.nodes], **facts)
    return measurements_of(probe, answers, [("speed", entity, node)])["probe.p.speed", entity]


def test_each_node_is_asked_and_told_by_its_name(rack, probe):
    answers = run_on_nodes(probe(GOOD), rack(3), ["node1", "node2", "node3"])
    assert [("node1", True, True), ("node2", True, True), ("node3", True, True)] == [
        (one.node, one.asked, one.answered) for one in answers
    ]
    assert {"node1", "node2", "node3"} == {value.entity for one in answers for value in one.values}


def test_nodes_are_asked_side_by_side(rack, probe):
    started = time.monotonic()
    run_on_nodes(probe(f"sleep 1; {GOOD}"), rack(6), [f"node{number}" for number in range(1, 7)])
    assert time.monotonic() - started < 5


def test_places_of_a_command_are_filled_in(rack, probe):
    line = GOOD.replace("3.5", "{cards}").replace("preparing", "{node} {peer} {other}")
    (answer,) = run_on_nodes(probe(line), rack(), ["node2"])
    assert (2.0, "node2 node1 {other}") == (answer.values[0].value, answer.text.splitlines()[0])


def test_several_nodes_take_part_in_one_probe_and_none_in_two_at_a_time(rack, probe, tmp_path):
    log = tmp_path / "log"
    line = f"echo begin >> {log}; sleep 0.2; echo end >> {log}; {GOOD}".replace("preparing", "{nodes}")
    answers = run_on_nodes(probe(line, nodes=2), rack(3), ["node1", "node2", "node3"])
    assert ["node1:2,node2:2", "node2:2,node3:2", "node3:2,node1:2"] == [
        one.text.splitlines()[0] for one in answers
    ]
    assert ["begin", "end"] * 3 == log.read_text().splitlines()


def test_a_collective_over_nodes_needs_the_cards_of_all_of_them(rack, probe):
    collective = {"tool": "nccl", "values": {"busbw": "GB/s", "wrong": "elements"}}
    table = (Path(__file__).parent / "outputs" / "nccl_table.txt").read_text()
    line = f"cat <<'EOF'\n{table}\nEOF"
    one, two = (
        run_on_nodes(probe(line, nodes=number, **collective), rack(2), ["node1"])[0] for number in (1, 2)
    )
    assert one.answered
    assert "2 ranks, and the target declares 4 cards: not all took part" in two.detail


def test_a_card_of_another_node_that_takes_part_must_be_idle_too(rack, probe):
    target = rack(2)
    held = busy_cards(target, engines_up=False)
    (answer,) = run_on_nodes(probe(GOOD, nodes=2, idle_cards=True), target, ["node2"], busy=held)
    assert answer.reason is Reason.EXCLUDED
    assert "vllm-0 serves on node2 or a node beside it already" in answer.detail


@pytest.mark.parametrize(
    ("line", "reason", "seen"),
    [
        ("true", Reason.BLANK, "no output, status 0"),
        ("kill -9 $$", Reason.DIED, "it was killed"),
        ("echo Killed >&2; exit 137", Reason.DIED, "it was killed"),
        (f"{GOOD}; exit 3", Reason.DIED, "status 3"),
        ("echo 'sudo: a password is required' >&2; exit 1", Reason.NO_PERMISSION, "asks for a password"),
        ("no-such-tool --all", Reason.TOOL_MISSING, "no-such-tool"),
        ("echo all tests passed", Reason.UNSUPPORTED, "all tests passed"),
        (GOOD.replace("3.5", "NaN"), Reason.UNSUPPORTED, "NaN"),
        (GOOD.replace("GB/s", "MB/s"), Reason.UNSUPPORTED, "declared is 'GB/s'"),
        (GOOD.replace('"node"', '"gpu9"'), Reason.UNSUPPORTED, "gpu9, which the target does not declare"),
        (GOOD.replace('"node"', '"gpu1"'), Reason.ABSENT, "but speed of node1/gpu1"),
        (GOOD.replace('"speed"', '"haste"'), Reason.ABSENT, "but haste of node1"),
    ],
)
def test_what_is_no_positive_evidence_is_unknown_and_says_what_was_seen(rack, probe, line, reason, seen):
    found = measured(probe(line), rack())
    assert (None, reason) == (found.value, found.reason)
    assert seen in found.detail
    assert found.detail.startswith("node1 was asked: ")
    if reason not in (Reason.TOOL_MISSING, Reason.ABSENT) and "declared is" not in seen:
        assert found.hint.startswith("run it by hand on node1: sh -c")


def test_a_program_that_is_not_there_says_how_to_get_it(rack, probe):
    found = measured(probe(command=("no-such-tool",), install="ask the vendor"), rack())
    assert (Reason.TOOL_MISSING, "ask the vendor") == (found.reason, found.hint)


def test_a_program_that_does_not_end_is_killed_at_its_deadline(rack, probe):
    started = time.monotonic()
    found = measured(probe("echo half way; sleep 60", deadline_s=0.5), rack())
    assert time.monotonic() - started < 10
    assert (Reason.TIMEOUT, True) == (found.reason, "half way" in found.detail)


def test_a_program_that_falls_silent_is_killed_before_its_deadline(rack, probe):
    started = time.monotonic()
    found = measured(probe("echo begun; sleep 60", deadline_s=50.0, silence_s=0.5), rack())
    assert time.monotonic() - started < 20
    assert "printed nothing for 0.5 s; seen last: 'begun'" in found.detail
    talks = probe(f"for i in 1 2 3 4; do echo $i; sleep 0.3; done; {GOOD}", silence_s=2.0)
    assert 3.5 == measured(talks, rack()).value


def test_a_bad_status_counts_where_it_is_part_of_the_result(rack, probe):
    assert 3.5 == measured(probe(f"{GOOD}; exit 226", status_tells=True), rack()).value
    assert measured(probe("exit 226", status_tells=True), rack()).reason is Reason.DIED


def test_a_probe_that_runs_here_runs_once_and_names_its_entities_whole(rack, probe):
    once = probe(GOOD.replace('"node"', '"node2"'), where="here")
    answers = run_on_nodes(once, rack(ssh="nowhere.invalid"), ["rack"])
    found = measurements_of(once, answers, [("speed", "node2", "rack"), ("speed", "node1", "rack")])
    assert (3.5, None) == (found["probe.p.speed", "node2"].value, found["probe.p.speed", "node1"].value)


def test_a_card_that_this_run_leaves_out_is_no_stranger(rack, probe):
    line = GOOD.replace('"node"', '"gpu5"')
    assert "gpu5" in measured(probe(line), rack()).detail
    assert measured(probe(line), rack(), left_out=["node1/gpu5", "node2/gpu5"]).reason is Reason.ABSENT


def test_a_result_that_is_written_to_a_file_comes_back_and_leaves_no_file(rack, probe, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    body = GOOD.split("echo ", 2)[2]
    writes = ("sh", "-c", f'echo a table for eyes; echo {body} > "$0"', "{output}")
    found = measured(probe(command=writes), rack())
    assert (3.5, []) == (found.value, list(tmp_path.iterdir()))


def test_a_share_is_of_the_median_of_all_that_gave_a_value(rack, probe):
    line = GOOD.replace("3.5", "'\"$(test {node} = node3 && echo 1 || echo 4)\"'")
    shares = probe(line, values={"speed": "GB/s", "part": "ratio"}, shares={"part": "speed"})
    answers = run_on_nodes(shares, rack(3), ["node1", "node2", "node3"])
    found = measurements_of(shares, answers, [("part", f"node{n}", f"node{n}") for n in (1, 3)])
    assert [1.0, 0.25] == [one.value for one in found.values()]
    alone = measurements_of(shares, answers[:1], [("part", "node1", "node1")])
    assert Reason.TOO_FEW is alone["probe.p.part", "node1"].reason


def test_a_peer_share_is_of_the_best_card_of_the_same_node(rack, probe):
    values = ", ".join(
        f'{{"name": "speed", "entity": "gpu{card}", "value": {value}, "unit": "GB/s"}}'
        for card, value in ((0, 8.0), (1, 10.0))
    )
    line = f'echo \'{{"version": 1, "complete": true, "values": [{values}]}}\''
    asked = probe(
        line, scope=Scope.CARD, values={"speed": "GB/s", "peer": "ratio"}, peer_shares={"peer": "speed"}
    )
    answers = run_on_nodes(asked, rack(1), ["node1"])
    wanted = [("peer", f"node1/gpu{card}", "node1") for card in (0, 1)]
    found = measurements_of(asked, answers, wanted)
    assert [0.8, 1.0] == [found["probe.p.peer", f"node1/gpu{card}"].value for card in (0, 1)]
    assert found["probe.p.peer", "node1/gpu0"].detail.startswith("8 GB/s, best of 2 on the node: 10")


def test_a_card_without_a_peer_has_no_peer_share(rack, probe):
    asked = probe(GOOD, values={"speed": "GB/s", "peer": "ratio"}, peer_shares={"peer": "speed"})
    answers = run_on_nodes(asked, rack(1), ["node1"])
    found = measurements_of(asked, answers, [("peer", "node1", "node1")])["probe.p.peer", "node1"]
    assert (None, Reason.TOO_FEW) == (found.value, found.reason)


def test_a_tool_that_wants_the_cards_is_not_run_beside_an_engine_of_others(rack, probe):
    busy = busy_cards(rack(), engines_up=False)
    assert {"node1/gpu0": "vllm-0"} == busy
    found = measured(probe(GOOD, idle_cards=True), rack(), busy=busy)
    assert (Reason.EXCLUDED, True) == (found.reason, "vllm-0 serves on node1 already" in found.detail)
    assert found.detail.startswith("node1 was not asked: ")
    assert "[probe.p] result" in found.hint
    assert {} == busy_cards(rack(launcher="process"), engines_up=False)
    assert {"node1/gpu0": "vllm-0"} == busy_cards(rack(launcher="process"), engines_up=True)


def test_a_client_waits_for_its_peer_and_tells_why_it_has_none(rack, probe, tmp_path):
    ready = tmp_path / "ready"
    server = ("sh", "-c", f"sleep 1; touch {ready}; sleep 1")
    client = probe(f"test -e {ready} || exit 1; {GOOD}", peer_command=server)
    assert 3.5 == measured(client, rack()).value
    refused = probe("exit 1", peer_command=("sh", "-c", "echo no such device >&2; exit 1"))
    assert "node2 does not listen: sh: no such device" in measured(refused, rack()).detail


def test_a_result_made_elsewhere_counts_while_it_is_young(rack, probe, tmp_path):
    file = tmp_path / "node1.json"
    file.write_text(GOOD.split("echo ", 2)[2].strip("'"))
    young = probe(result=str(tmp_path / "{node}.json"))
    found = measured(young, rack())
    assert (3.5, True) == (found.value, f"{file} was made" in found.detail)
    day_ago = time.time() - 90_000
    os.utime(file, (day_ago, day_ago))
    assert measured(young, rack()).reason is Reason.STALE
    told = probe(result=str(file), made_at=datetime.now(UTC) - timedelta(hours=1))
    assert 3.5 == measured(told, rack()).value
    assert measured(probe(result=str(file), max_age_s=60.0), rack()).reason is Reason.STALE
    later = probe(result=str(file), made_at=datetime.now(UTC) + timedelta(hours=1))
    assert "yet to come" in measured(later, rack()).detail
    assert measured(probe(result=str(tmp_path / "none.json")), rack()).reason is Reason.ABSENT


def test_a_container_gets_the_cards_of_its_vendor_and_ends_by_itself(rack, probe):
    boxed = probe(where="container", image="img:1", deadline_s=90.0)
    line = shown_command(command_of(boxed, ("tool", "-j"), "node1", rack().nodes[0].cards))
    assert line.startswith("docker run --rm --init")
    assert line.endswith("--gpus all --entrypoint timeout img:1 -k 5 90 tool -j")
    slurm = command_of(probe(where="srun"), ("tool",), "node7", ())
    assert "--nodelist=node7" in slurm.argv


def test_slurm_is_asked_for_each_node_by_its_name(rack, probe, tmp_path, monkeypatch):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$5 $6" >&2\nshift 6\nexec "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    closed = rack(ssh="nowhere.invalid")
    slurm = probe(GOOD, where="srun", options=("--account=lab",))
    first, second = run_on_nodes(slurm, closed, ["node1", "node2"])
    assert [3.5, 3.5] == [first.values[0].value, second.values[0].value]
    assert "--nodelist=node2" in second.command
    assert "--time=1 --account=lab" == second.errors.strip()


def test_a_probe_without_a_command_says_what_to_give(rack, probe):
    found = measured(probe(), rack())
    assert (Reason.NOT_CONFIGURED, True) == (found.reason, "[probe.p] command" in found.detail)


def test_values_of_cards_are_told_apart(rack, probe):
    line = GOOD.replace('"node"', '"gpu1"')
    found = measured(probe(line, scope=Scope.CARD), rack(), entity="node2/gpu1", node="node2")
    assert (3.5, "node2/gpu1", "probe p") == (found.value, found.entity, found.source)
