"""`[probe.NAME]`: what it means, and what is refused before anything runs."""

import json
from pathlib import Path

import pytest

from rackgate.config.probe_output import output_schema
from rackgate.config.problems import ConfigError
from rackgate.nouns.slo import Scope

ROW = """
[[slo]]
id = "preflight.disk"
metric = "probe.disk.read"
op = ">="
bound = 5.0
unit = "GB/s"
scope = "node"
source = "contract"
"""


@pytest.fixture
def load(tmp_path, shipped):
    """Lay a site's file over the shipped ones."""

    def load(text):
        file = tmp_path / "site.toml"
        file.write_text(text)
        return shipped(path=file)

    return load


def test_a_sites_probe_gives_metrics_for_its_rows(load):
    agreed = load('[probe.disk]\ncommand = ["d", "{node}"]\nvalues = { read = "GB/s" }\n' + ROW)
    probe = agreed.probes["disk"]
    assert (("d", "{node}"), {"read": "GB/s"}, Scope.NODE, ("tool:d",)) == (
        probe.command,
        probe.values,
        probe.scope,
        probe.inputs,
    )
    assert "probe.disk.read" == agreed.slo("preflight.disk").metric


def test_a_shipped_probe_is_changed_with_a_reason_only(load):
    with pytest.raises(ConfigError, match="overrides shipped probes"):
        load('[probe.compute]\nwhere = "container"\nimage = "i"\n')
    changed = load('[probe.compute]\nwhere = "container"\nimage = "i"\nreason = "torch is in the image"\n')
    assert ("container", "i", ("docker",)) == (
        changed.probes["compute"].where,
        changed.probes["compute"].image,
        changed.probes["compute"].inputs,
    )
    made = load(
        '[probe.dcgm_burn]\ncommand = []\nresult = "{node}.json"\nmade_at = 2026-01-01T08:00:00Z\n'
        'reason = "r"\n'
    )
    assert ("{node}.json", False, ()) == (
        made.probes["dcgm_burn"].result,
        made.probes["dcgm_burn"].needs_host,
        made.probes["dcgm_burn"].inputs,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[probe.d]\ncomand = ["x"]\n', "probe.d.comand: unknown key; did you mean 'command'?"),
        ('[probe.d]\ntool = "dcgmi"\n', "probe.d.tool: no tool 'dcgmi'; did you mean 'dcgm'?"),
        ('[probe.d]\ncommand = ["x"]\n', "probe.d.values: missing"),
        ('[probe.d]\nvalues = { a = "s" }\n', "probe.d.command: missing"),
        ('[probe.d]\ntool = "fio"\nvalues = { a = "s" }\n', "tool 'fio' has its own (read, read_share)"),
        ('[probe.d]\ntool = "rvs"\ncommand = ["rvs"]\n', "name it {output}"),
        ('[probe.d]\ncommand = ["x"]\nresult = "f"\nvalues = { a = "s" }\n', "result: stands beside command"),
        ('[probe.d]\ncommand = ["x"]\nwhere = "container"\nvalues = { a = "s" }\n', "image: goes with"),
        ('[probe.d]\ncommand = ["x"]\nscope = "rack"\nvalues = { a = "s" }\n', "runs once, where = 'here'"),
        ('[probe.d]\ncommand = ["x"]\nwhere = "there"\nvalues = { a = "s" }\n', "probe.d.where"),
        ('[probe.d]\ncommand = ["x"]\nwhere = "here"\nnodes = 2\nvalues = { a = "s" }\n', "nodes: more than"),
        ('[probe.disk]\ncommand = ["x"]\nvalues = { reed = "GB/s" }\n' + ROW, "no metric 'probe.disk.read'"),
        ('[probe.disk]\ncommand = ["x"]\nvalues = { read = "MB/s" }\n' + ROW, "is measured in 'MB/s'"),
        (
            '[probe.disk]\ncommand = ["x"]\nscope = "card"\nvalues = { read = "GB/s" }\n' + ROW,
            "scope: 'node', but probe.disk.read is said of each card",
        ),
        (
            '[probe.disk]\ncommand = ["x"]\nvalues = { read = "GB/s" }\n'
            + ROW.replace("preflight.disk", "selfcheck.disk"),
            "no probe is run in the stage selfcheck",
        ),
    ],
)
def test_a_probe_that_could_never_answer_is_refused_with_the_reason(load, text, problem):
    with pytest.raises(ConfigError) as refused:
        load(text)
    assert problem in str(refused.value)


def test_the_shipped_schema_is_what_an_output_is_checked_by():
    shipped = Path(__file__).parents[2] / "plugins" / "rackgate" / "probes" / "output.schema.json"
    assert output_schema() == json.loads(shipped.read_text())


def test_the_command_lists_tools_prints_the_schema_and_checks_an_output(tmp_path, capsys):
    from rackgate.cli import main
    from rackgate.probes.tools import tools

    assert 0 == main(["probes"])
    shown = capsys.readouterr().out
    assert [] == [name for name in tools() if f"\n{name}: " not in f"\n{shown}"]
    assert 0 == main(["probes", "--schema"])
    assert output_schema() == json.loads(capsys.readouterr().out)
    good = tmp_path / "good.json"
    value = {"name": "a", "entity": "gpu0", "value": 1.5, "unit": "s"}
    good.write_text(json.dumps({"version": 1, "complete": True, "values": [value]}))
    assert 0 == main(["probes", "--check", str(good)])
    assert "a of gpu0: 1.5 s\n" == capsys.readouterr().out
    good.write_text("all good")
    assert 1 == main(["probes", "--check", str(good)])
    assert "no JSON, but 'all good'" in capsys.readouterr().err
