import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from rackgate.config.acceptance_file import load_acceptance
from rackgate.diagnosis.cures import cure_of_input, install_hint
from rackgate.doctor.input_checks import check_input
from rackgate.doctor.snapshot import Snapshot
from rackgate.metrics.inputs import KINDS, alternatives
from rackgate.nouns.measurement import Reason
from rackgate.nouns.target import Target
from rackgate.probes.tools import tools
from rackgate.telemetry.assembly import CARD_SOURCES
from rackgate.telemetry.cards.dcgm_names import counter_line

CURES = tomllib.loads(files("rackgate.diagnosis").joinpath("cures.toml").read_text("utf-8"))
DOCS = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")


def test_cures_are_of_known_kinds_sources_and_reasons():
    assert set(CURES) <= set(KINDS)
    for kind, table in CURES.items():
        for key in table if kind != "tool" else ():
            source, _, reason = key.rpartition(".")
            assert reason in {*map(str, Reason), "any"}
            assert source in {"", *CARD_SOURCES}


@pytest.mark.parametrize("kind", ["card", "host", "kernel_log", "redfish", "docker"])
@pytest.mark.parametrize("reason", list(Reason))
def test_whatever_the_reason_there_is_something_to_do(kind, reason):
    assert cure_of_input(kind, "", reason)


@pytest.mark.parametrize("program", ["dcgmi", "nvbandwidth", "all_reduce_perf", "ib_write_bw", "fio", "rvs"])
def test_the_program_of_a_probe_is_had_as_its_catalogue_says(program):
    assert install_hint(program) in {tool.install for tool in tools().values()}


def test_a_program_without_an_entry_is_still_named():
    assert "nobody-knows-it" in install_hint("nobody-knows-it")


def test_what_was_said_names_the_grant_itself():
    said = "dmesg: refused; it needs the group adm for this user"
    assert "the group adm for this user" == cure_of_input("kernel_log", "", None, detail=said)


def test_the_counter_lines_of_the_docs_are_those_that_the_doctor_gives():
    written = {line.split(",")[0] for line in re.findall(r"(?m)^DCGM_\S.*$", DOCS)}
    given = {str(counter_line(field)).split(",")[0] for field in _fields_of_shipped_rows()}
    assert written - given == set()


def _fields_of_shipped_rows():
    return {one.name for one in _inputs() if one.kind == "card" and one.name}


def _inputs():
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    agreed = load_acceptance(None, "signoff", metrics=registry.metrics, target=None)
    registry.add_probes(agreed.probes)
    needed = {written for row in agreed.slos for written in registry.metrics[row.metric].needs}
    return [one for written in needed for one in alternatives(written)]


def test_every_input_of_every_shipped_row_can_be_tried_of_a_rack_that_says_nothing():
    silent = Snapshot(target=Target(name="rack", model="m", grade="unproven"), deadline_s=1.0)
    tried = {str(one): check_input(one, "n1", silent) for one in _inputs()}
    assert [name for name, one in tried.items() if not one.ok and not (one.text and one.cure)] == []
