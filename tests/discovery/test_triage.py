import pytest

from rackgate.discovery.machine import CardInventory
from rackgate.discovery.triage import pci_accelerators, triage_of
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import RootRunner


def steps(folder):
    runner = RootRunner(folder)
    found = triage_of(runner, read_host(runner), CardInventory(why="NVML: library_not_found"), 1.0)
    return {step.name: step for step in found}


def accelerators(folder):
    runner = RootRunner(folder)
    return pci_accelerators(
        runner.read(("/sys/bus/pci/devices/*/vendor", "/sys/bus/pci/devices/*/class"), 1.0)
    )


def test_the_steps_come_in_the_order_of_the_field(folder):
    assert ["device", "kernel module", "driver", "CUDA", "container runtime"] == list(steps(folder))


def test_a_card_of_another_vendor_is_named_and_not_blamed_on_nvidias_driver(folder, pci):
    pci("0000:c1:00.0", "0x1002", "0x120000")
    step = steps(folder)["device"]
    assert (False, "none of NVIDIA: AMD at 0000:c1:00.0") == (step.ok, step.text)


@pytest.mark.parametrize(
    ("vendor", "kind", "named"),
    [
        ("0x10de", "0x030200", "NVIDIA"),
        ("0x10de", "0x030000", "NVIDIA"),
        ("0x1002", "0x038000", "AMD"),
        ("0x1da3", "0x120000", "Habana"),
        ("0x1a03", "0x030000", None),
        ("0x8086", "0x030000", None),
        ("0x10de", "0x068000", None),
    ],
)
def test_an_accelerator_is_told_from_a_screens_controller(folder, pci, vendor, kind, named):
    pci("0000:1b:00.0", vendor, kind)
    assert ((f"{named} at 0000:1b:00.0",) if named else ()) == accelerators(folder)


def test_a_bus_without_an_accelerator_is_the_first_thing_to_look_at(folder, pci):
    pci("0000:00:00.0", "0x8086", "0x060000")
    step = steps(folder)["device"]
    assert (False, "no accelerator on the PCI bus") == (step.ok, step.text)
    assert "lspci" in step.next_step


def test_a_bus_that_cannot_be_seen_is_no_bus_without_an_accelerator(folder):
    assert steps(folder)["device"].ok is None


def test_a_card_without_its_module_is_a_matter_of_the_module(folder, pci):
    pci("0000:1b:00.0", "0x10de", "0x030200")
    (folder / "proc").mkdir()
    (folder / "proc" / "modules").write_text("ext4 1 2 - Live 0x0\n")
    found = steps(folder)
    assert (True, False) == (found["device"].ok, found["kernel module"].ok)
    assert "modprobe nvidia" in found["kernel module"].next_step


def test_nouveau_is_named(folder):
    (folder / "proc").mkdir()
    (folder / "proc" / "modules").write_text("nouveau 1 2 - Live 0x0\n")
    assert "nouveau" in steps(folder)["kernel module"].text
