"""What was ordered against what is there: lists of cards, pins, holders of cards, links, domains."""

import os
from importlib.resources import files

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.facts.host import read_host
from rackgate.hosts.runner import RootRunner
from rackgate.hosts.tools.nvidia_smi_inventory import listed_as, parse_inventory, parse_links
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.measurement import Reason
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.preflight.driver import probe_domains, probe_driver
from rackgate.preflight.inventory import probe_holders, probe_listing, probe_pins
from rackgate.telemetry.cards.dcgm_exporter_page import listed_cards, pages_of

METRICS = shipped_registry().metrics

ROOTS = files("rackgate.simulator") / "host_roots"
SILENT = (Reason.TIMEOUT, "no answer")


def rack(*cards, expect=None, telemetry=None, launcher="remote"):
    node = {"name": "n1", "card": list(cards)}
    if telemetry:
        node["telemetry"] = telemetry
    document = {
        "target": {"name": "rack", "model": "m"},
        "node": [node],
        "engine": [{"name": "e", "launcher": launcher, "url": "http://h:1", "cards": ["n1/gpu0"]}],
        "expect": expect or {},
    }
    return parse_target(document, "rack.toml", {launcher: lambda _: []})


def node(*cards, **expect):
    return rack(*cards, expect=expect).nodes[0]


def gpu(pci="1B", processes="<processes/>", **fields):
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in fields.items())
    return f'<gpu id="00000000:{pci}:00.0">{inner}{processes}</gpu>'


def smi(*gpus):
    versions = "<driver_version>580.82.07</driver_version><cuda_version>13.0</cuda_version>"
    return f"<nvidia_smi_log>{versions}{''.join(gpus)}</nvidia_smi_log>"


def process(pid, name, memory="512 MiB", kind="C"):
    fields = {"pid": pid, "type": kind, "process_name": name, "used_memory": memory}
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in fields.items())
    return f"<process_info>{inner}</process_info>"


def held(*processes, used="1000 MiB"):
    memory = f"<fb_memory_usage><used>{used}</used></fb_memory_usage>"
    return Fact(smi(gpu(processes=f"{memory}<processes>{''.join(processes)}</processes>")))


def test_a_card_is_read_with_its_blanks_as_nothing():
    card = parse_inventory(smi(gpu(serial="N/A", uuid="GPU-1", gpu_recovery_action="None"))).cards[0]
    assert (card.pci, card.serial, card.uuid) == ("0000:1b:00.0", None, "GPU-1")
    assert (card.recovery_action, card.processes) == ("none", ())


@pytest.mark.parametrize("text", ["", "NVIDIA-SMI has failed", "<html></html>", "<nvidia_smi_log>"])
def test_what_is_no_inventory_is_none(text):
    assert parse_inventory(text) is None


def test_a_declared_card_is_found_by_its_address_then_by_its_uuid_then_by_its_place():
    listed = parse_inventory(smi(gpu("1B", uuid="GPU-1"), gpu("29", uuid="GPU-2"))).cards
    by_pci, by_uuid, by_place, lost = node(
        {"index": 0, "pci": "00000000:29:00.0"},
        {"index": 1, "uuid": "GPU-1"},
        {"index": 2},
        {"index": 3, "uuid": "GPU-9"},
    ).cards
    assert [listed_as(card, listed).uuid for card in (by_pci, by_uuid)] == ["GPU-2", "GPU-1"]
    assert [listed_as(card, listed) for card in (by_place, lost)] == [None, None]


def page(*labels):
    lines = [f"DCGM_FI_DEV_GPU_TEMP{{{one}}} 40" for one in labels]
    return listed_cards(pages_of("\n".join(lines) + "\n"))


def undeclared(declared, listed):
    return probe_listing(declared, listed, SILENT)["undeclared_cards", "n1"]


def identity(declared, listed):
    return probe_listing(declared, listed, SILENT)["identity_differences", "n1/gpu0"]


def test_a_card_that_nobody_declared_is_reported():
    listed = page('gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0"', 'gpu="1",UUID="GPU-2"')
    found = undeclared(node({"index": 0, "uuid": "GPU-1"}), listed)
    assert (found.value, "GPU-2" in found.detail) == (1.0, True)
    both = node({"index": 0, "uuid": "GPU-1"}, {"index": 1})
    assert undeclared(both, listed).value == 0.0
    assert undeclared(both, None).reason == Reason.TIMEOUT


def test_an_exchanged_card_is_told_by_its_serial_and_its_address():
    listed = page('gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",DCGM_FI_DEV_SERIAL="165"')
    same = node({"index": 0, "uuid": "GPU-1", "serial": "165", "pci": "1b:00.0"})
    assert identity(same, listed).value == 0.0
    other = identity(node({"index": 0, "serial": "166", "pci": "0000:2b:00.0"}), listed)
    assert (other.value, "serial 165, declared 166" in other.detail) == (2.0, True)


@pytest.mark.parametrize(
    ("declared", "listed", "differs"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", False),
        ("H100-SXM", "NVIDIA H100 80GB HBM3", False),
        ("h200", "NVIDIA H200", False),
        ("A100", "NVIDIA A100-SXM4-80GB", False),
        ("GB200", "NVIDIA GB200", False),
        ("MI300X", "AMD Instinct MI300X OAM", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", False),
        ("B200", "NVIDIA GB200", True),
        ("H200", "NVIDIA H100 80GB HBM3", True),
        ("H100 NVL", "NVIDIA H200 NVL", True),
        ("L40S", "NVIDIA L40", True),
    ],
)
def test_a_card_of_another_kind_than_the_one_ordered_is_told_by_its_name(declared, listed, differs):
    found = identity(node({"index": 0, "sku": declared}), page(f'gpu="0",UUID="GPU-1",modelName="{listed}"'))
    assert float(differs) == found.value
    assert not differs or f"name {listed}, declared {declared}" == found.detail


def test_a_sku_that_the_source_does_not_name_is_unknown():
    found = identity(node({"index": 0, "sku": "H100"}), page('gpu="0",UUID="GPU-1"'))
    assert (found.value, "does not say sku" in found.detail) == (None, True)


def test_a_card_of_which_nothing_is_declared_is_compared_with_nothing_and_not_found_the_same():
    bare, listed = {"index": 0}, page('gpu="0",UUID="GPU-1"')
    assert identity(node(bare), listed).reason == Reason.NOT_CONFIGURED
    (why,) = absent(rack(bare), "identity_differences", Scope.CARD)
    assert "gives neither serial, PCI address, UUID nor SKU of n1/gpu0" in why
    for known in ({"uuid": "GPU-1"}, {"serial": "1"}, {"pci": "1b:00.0"}, {"sku": "H100"}):
        assert [""] == absent(rack({**bare, **known}), "identity_differences", Scope.CARD)
    assert identity(node({**bare, "uuid": "GPU-1"}), listed).value == 0.0


def test_an_identity_that_the_source_does_not_show_is_unknown():
    found = identity(node({"index": 0, "serial": "165"}), page('gpu="0",UUID="GPU-1"'))
    assert (found.value, "does not say serial" in found.detail) == (None, True)
    assert identity(node({"index": 0, "uuid": "GPU-9"}), page('gpu="0",UUID="GPU-1"')).value is None
    assert identity(node({"index": 0}), None).reason == Reason.TIMEOUT


def pins(facts=(), read=(), **expect):
    known = read_host(RootRunner(ROOTS / "healthy")) | dict(facts)
    return probe_pins(node({"index": 0}, **expect), known, dict(read)).get(("pins_differing", "n1"))


def test_pins_hold_differ_or_are_unknown():
    good = {"driver": "580.82.07", "kernel": "6.8.0-60-generic", "vbios": "96.00.74.00.01"}
    assert pins(**good).value == 0.0
    found = pins(**{**good, "driver": "575.57.08", "part": "other"})
    assert (found.value, "driver 580.82.07, pinned 575.57.08" in found.detail) == (2.0, True)
    unread = pins({"kernel": Fact(None, Reason.NO_PERMISSION, "refused")}, **good)
    assert (unread.value, "not read: kernel" in unread.detail) == (None, True)
    assert pins() is None


def test_firmware_is_pinned_by_the_controllers_names():
    pinned = {"firmware": {"BMC": "1.2"}}
    assert pins(read={"BMC": "1.2"}, **pinned).value == 0.0
    assert "firmware BMC 1.1, pinned 1.2" in pins(read={"BMC": "1.1"}, **pinned).detail
    assert pins(read={"BMC": None}, **pinned).value is None


def holders(answer, groups=(), *, local=False, **expect):
    declared = rack({"index": 0}, expect=expect, telemetry={"local": True} if local else None).nodes[0]
    found = probe_holders(declared, answer, groups)
    return found["foreign_processes", "n1/gpu0"], found["unowned_memory_mib", "n1/gpu0"]


def test_a_foreign_process_is_named_with_its_pid():
    answer = held(process(7, "VLLM::EngineCore"), process(31, "/usr/bin/python3 train.py", "400 MiB"))
    found, _ = holders(answer, processes=["VLLM::*"])
    assert (found.value, found.detail) == (1.0, "pid 31 /usr/bin/python3 train.py holds 400 MiB")
    assert holders(answer, processes=["VLLM::*", "python3"])[0].value == 0.0


def test_a_picture_on_a_display_is_no_load():
    assert holders(held(process(7, "/usr/lib/xorg/Xorg", kind="G")))[0].value == 0.0


def test_processes_of_our_own_engines_are_not_foreign_on_this_machine_only():
    answer = held(process(os.getpid(), "python"))
    own = {os.getpgid(0)}
    assert holders(answer, own, local=True)[0].value == 0.0
    assert holders(answer, own)[0].value == 1.0
    assert holders(answer, {1}, local=True)[0].value == 1.0


def test_memory_that_no_process_owns_is_counted():
    _, found = holders(held(process(7, "vllm"), used="40512 MiB"))
    assert (found.value, "1 processes hold 512 MiB" in found.detail) == (40000.0, True)
    assert holders(held(process(7, "vllm", "N/A")))[1].reason == Reason.UNSUPPORTED


def test_a_driver_that_does_not_list_processes_leaves_the_holders_unknown():
    refused = Fact(None, Reason.NO_PERMISSION, "refused")
    assert [one.reason for one in holders(refused)] == [Reason.NO_PERMISSION] * 2
    unlisted = Fact(smi(gpu(processes="<processes>N/A</processes>")))
    assert [one.value for one in holders(unlisted)] == [None, None]


def driver(text, links="", **expect):
    facts = {"driver_answer": Fact(text), "nvlinks": Fact(links or None, None, "not asked")}
    found = probe_driver(node({"index": 0}, **expect), facts)
    return {name: one for (name, _), one in found.items()}


@pytest.mark.parametrize(
    ("word", "code"), [("None", 0.0), ("Reset", 1.0), ("Reboot", 2.0), ("Drain and Reset", 4.0), ("Eh", 5.0)]
)
def test_what_the_driver_wants_done_is_a_code(word, code):
    assert driver(smi(gpu(gpu_recovery_action=word)))["recovery_action"].value == code


def test_an_old_driver_has_no_word_for_what_it_wants():
    assert "recovery_action" not in driver(smi(gpu()))


def test_errors_of_on_chip_memory_are_summed_and_blanks_are_unknown():
    errors = "<aggregate><sram_uncorrectable_parity>2</sram_uncorrectable_parity>"
    errors += "<sram_uncorrectable_secded>1</sram_uncorrectable_secded></aggregate>"
    assert driver(smi(gpu(ecc_errors=errors)))["sram_uncorrectable"].value == 3.0
    assert driver(smi(gpu()))["sram_uncorrectable"].value is None


def test_mig_is_as_declared_or_differs():
    cut = "<current_mig>Enabled</current_mig>"
    one = "<mig_device><index>0</index></mig_device>"
    enabled = smi(gpu(mig_mode=cut, mig_devices=one))
    assert driver(enabled, mig=1)["mig_differences"].value == 0.0
    assert driver(enabled, mig=0)["mig_differences"].value == 1.0
    assert driver(smi(gpu(mig_mode=cut, mig_devices="None")), mig=0)["mig_differences"].value == 1.0
    assert driver(smi(gpu()), mig=0)["mig_differences"].value == 0.0
    assert driver("", mig=0)["mig_differences"].value is None


def test_links_that_are_down_or_slower_than_most_are_lost():
    text = "GPU 0: H (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: 13 GB/s\n"
    text += "GPU 1: H (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
    assert parse_links(text) == {0: (26.562, None, 13.0), 1: (26.562, 26.562)}
    found = driver(smi(gpu()), text, nvlinks=3)["nvlinks_lost"]
    assert (found.value, found.detail) == (2.0, "1 of 3 links up at 26.562 GB/s")
    assert driver(smi(gpu()), nvlinks=3)["nvlinks_lost"].value is None


def fabric(clique="1", state="Completed", uuid="5a3f"):
    return f"<state>{state}</state><cliqueId>{clique}</cliqueId><clusterUuid>{uuid}</clusterUuid>"


def test_cards_outside_the_domain_of_the_rack_are_counted_on_their_node():
    first = rack({"index": 0}, {"index": 1}, expect={"fabric": True}).nodes[0]
    answers = smi(gpu("1B", fabric=fabric()), gpu("29", fabric=fabric(clique="2")))
    facts = {"n1": {"driver_answer": Fact(answers)}}
    assert probe_domains([first], facts)["fabric_outside", "n1"].value == 1.0
    same = {"n1": {"driver_answer": Fact(smi(gpu("1B", fabric=fabric()), gpu("29", fabric=fabric())))}}
    assert probe_domains([first], same)["fabric_outside", "n1"].value == 0.0
    begun = smi(gpu("1B", fabric=fabric(state="In Progress")), gpu("29", fabric=fabric()))
    assert probe_domains([first], {"n1": {"driver_answer": Fact(begun)}})["fabric_outside", "n1"].value == 1.0
    silent = {"n1": {"driver_answer": Fact(None, *SILENT)}}
    assert probe_domains([first], silent)["fabric_outside", "n1"].value is None
    assert probe_domains([node({"index": 0})], same) == {}


def absent(target, metric, scope):
    row = Slo(
        id=f"preflight.{metric}",
        stage="preflight",
        metric=metric,
        statistic="value",
        op=Op.EQUAL,
        bound=0.0,
        unit="",
        scope=scope,
        source="test",
    )
    return [check.declared_absent for check in plan_checks(target, [row], metrics=METRICS, probes={})]


@pytest.mark.parametrize(
    ("metric", "scope", "expect", "card"),
    [
        ("pins_differing", Scope.NODE, {"driver": "1"}, {}),
        ("fabric_outside", Scope.NODE, {"fabric": True}, {}),
        ("nvlinks_lost", Scope.CARD, {"nvlinks": 18}, {}),
        ("mig_differences", Scope.CARD, {"mig": 0}, {}),
        ("foreign_processes", Scope.CARD, {"processes": ["vllm"]}, {}),
        ("xids_since_boot", Scope.CARD, {}, {"pci": "1b:00.0"}),
    ],
)
def test_a_comparison_is_asked_where_the_target_declares_what_to_compare_with(metric, scope, expect, card):
    opened = {"local": True}
    assert absent(rack({"index": 0}, telemetry=opened), metric, scope) != [""]
    assert absent(rack({"index": 0, **card}, expect=expect, telemetry=opened), metric, scope) == [""]
    assert "no way into" in absent(rack({"index": 0, **card}, expect=expect), metric, scope)[0]


def test_a_nodes_own_words_come_before_those_for_all():
    document = {
        "target": {"name": "rack", "model": "m"},
        "node": [{"name": "n1", "expect": {"driver": "2", "mig": 7}}, {"name": "n2"}],
        "engine": [{"name": "e", "launcher": "remote", "url": "http://h:1"}],
        "expect": {"driver": "1", "cuda": "13.0", "processes": ["vllm"]},
    }
    first, second = parse_target(document, "rack.toml", {"remote": lambda _: []}).nodes
    assert first.expect.pins == {"driver": "2", "cuda": "13.0"}
    assert (first.expect.mig, first.expect.processes) == (7, ("vllm",))
    assert (second.expect.pins["driver"], second.expect.mig) == ("1", None)


def test_an_address_that_is_none_is_a_problem_of_the_file():
    with pytest.raises(ConfigError, match="must be a PCI address"):
        rack({"index": 0, "pci": "slot 3"})
