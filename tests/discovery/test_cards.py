import time
from dataclasses import replace

import pytest

from rackgate.discovery.cards import cards_of_page, find_cards
from rackgate.discovery.inspection import inspect_machine
from rackgate.discovery.target_source import local_target
from rackgate.hosts.runner import LocalRunner, RootRunner
from rackgate.nouns.measurement import Reason
from rackgate.preflight.hosts import inspect_hosts

SMI = (
    "nvidia-smi_--query-gpu_index_uuid_serial_name_pci.bus_id_driver_version"
    "_--format_csv_noheader_nounits.txt"
)
NO_LIBRARY = {"LD_LIBRARY_PATH": "/nowhere"}


def test_cards_are_known_by_the_drivers_library_with_what_identifies_them(folder, stand_in):
    found = find_cards(RootRunner(folder), 5.0, stand_in.environment)
    first = found.cards[0]
    assert ("nvml", 2, "580.82.07", "13.0") == (found.source, len(found.cards), found.driver, found.cuda)
    assert ("NVIDIA H200", "0000:1b:00.0", "1500000000000") == (first.name, first.pci, first.serial)
    assert first.links == "PCIe 5 x16, 18 NVLinks up, in fabric clique 4026"


def test_a_card_that_the_driver_counts_and_gives_no_access_to_is_noted(folder, stand_in):
    stand_in.card(1, handle=15)
    found = find_cards(RootRunner(folder), 5.0, stand_in.environment)
    assert [0] == [card.index for card in found.cards]
    assert "gives no handle of card 1" in found.lost[0]


def test_without_the_library_the_command_is_asked(folder):
    row = "0, GPU-1, [N/A], NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 570.86.15\n"
    (folder / "commands" / SMI).write_text(row)
    found = find_cards(RootRunner(folder), 5.0, NO_LIBRARY)
    (card,) = found.cards
    assert ("nvidia-smi", "570.86.15") == (found.source, found.driver)
    assert ("GPU-1", "", "0000:1b:00.0") == (card.uuid, card.serial, card.pci)


def test_with_neither_both_say_why(folder):
    found = find_cards(RootRunner(folder), 5.0, NO_LIBRARY)
    assert ((), "") == (found.cards, found.source)
    assert "library_not_found" in found.why
    assert "nvidia-smi is not installed" in found.why


def test_a_command_that_cannot_reach_the_driver_lists_no_card(folder):
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    (folder / "commands" / SMI).write_text(f"exit 9\n{said}\n")
    found = find_cards(RootRunner(folder), 5.0, NO_LIBRARY)
    assert () == found.cards
    assert "driver_not_loaded" in found.why


def test_the_cards_of_an_exporters_page_are_told_apart_by_index():
    page = (
        'DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"} 41\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"} 40\n'
        "up 1\n"
    )
    assert [(0, "GPU-a"), (1, "GPU-b")] == [(card.index, card.uuid) for card in cards_of_page(page)]


@pytest.mark.parametrize("page", ["", "# nothing\n", "up 1\n"])
def test_a_page_without_cards_lists_none(page):
    assert () == cards_of_page(page)


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """Put a driver's tool in the way that hangs, and return the file of what it was asked."""
    asked, tool = tmp_path / "asked", tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {asked}\nexec sleep 60\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    return asked


def test_a_driver_that_hangs_does_not_keep_anyone_waiting(hanging):
    started = time.monotonic()
    machine = inspect_machine(deadline_s=1.0)
    assert time.monotonic() - started < 20
    assert "within" in machine.inventory.why


def test_where_neither_lists_a_card_both_say_why(hanging):
    found = find_cards(LocalRunner(), 2.0, NO_LIBRARY)
    assert found.why.startswith("NVML: library_not_found")
    assert found.why.endswith("nvidia-smi did not end within 2 s")


def test_preflight_does_not_wait_again_for_a_driver_that_hung_a_moment_ago(hanging):
    machine = inspect_machine(deadline_s=1.0)
    before = hanging.read_text()
    assert sorted(before.splitlines()) == sorted({*before.splitlines()})
    target = local_target(replace(machine, services=()))
    look = inspect_hosts(target, hung={machine.host: machine.hung})
    assert before == hanging.read_text()
    told = look.facts[machine.host]["driver_answer"]
    assert (Reason.TIMEOUT, "nvidia-smi did not end within 1 s") == (told.reason, told.detail)
    assert look.facts[machine.host]["kernel"].value


def test_a_driver_that_answered_is_asked_again(hanging):
    hanging.with_name("nvidia-smi").write_text(f'#!/bin/sh\necho "$*" >> {hanging}\nexit 9\n')
    machine = inspect_machine(deadline_s=1.0)
    assert {} == machine.hung
    before = hanging.read_text()
    inspect_hosts(local_target(replace(machine, services=())), hung={machine.host: machine.hung})
    assert before != hanging.read_text()
