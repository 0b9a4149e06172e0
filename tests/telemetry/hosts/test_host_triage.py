"""What is read of a host, what is wrong with it, and in what nodes differ."""

import os
import stat
import time

import pytest
from host_machine import machine, smi

from rackgate.hosts.facts.demands import HostDemands
from rackgate.hosts.facts.host import FACTS, read_host
from rackgate.hosts.facts.node_differences import compared_facts, outliers, splits
from rackgate.hosts.facts.triage import host_findings
from rackgate.hosts.runner import LocalRunner, Ran
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict
from rackgate.preflight.host_findings import probe_hosts


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def findings(facts):
    return [(one.step, one.verdict) for one in host_findings(facts, HostDemands(cards=8))]


def test_a_healthy_host_has_every_fact_it_can_have_and_no_finding(tmp_path):
    facts = read_host(machine(tmp_path))
    assert set(facts) == set(FACTS)
    assert facts["driver_module"].value == facts["driver_library"].value == "580.82.07"
    assert facts["infiniband"].value == "mlx5_0: ACTIVE 400 Gb/sec (4X NDR)"
    assert facts["clock_offset_s"].value == "-0.000012"
    assert facts["dkms"].reason == Reason.TOOL_MISSING
    assert findings(facts) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"proc/modules": "nouveau 1 0 - Live 0x0\nnvidia_peermem 1 0 - Live 0x0\n"},
            [("module", Verdict.FAIL), ("module", Verdict.FAIL)],
        ),
        (
            {
                "proc/modules": "nvidia_peermem 1 0 - Live 0x0\n",
                "commands/mokutil_--sb-state.txt": "SecureBoot enabled\n",
            },
            [("module", Verdict.FAIL)],
        ),
        (
            {"commands/dkms_status.txt": "nvidia/580.82.07, 6.5.0-1, x86_64: installed\n"},
            [("module", Verdict.WARN)],
        ),
        ({"commands/dkms_status.txt": "nvidia/580.82.07: added\n"}, [("module", Verdict.WARN)]),
        (
            {
                "commands/mokutil_--sb-state.txt": "SecureBoot enabled\n",
                "commands/modinfo_-F_signer_nvidia.txt": "\n",
            },
            [("module", Verdict.WARN)],
        ),
        (
            {
                "commands/nvidia-smi_-q_-x.txt": (
                    "exit 18\nFailed to initialize NVML: Driver/library version mismatch\n"
                    "NVML library version: 580.95\n"
                )
            },
            [("driver", Verdict.FAIL), ("cuda", Verdict.UNKNOWN)],
        ),
        (
            {
                "commands/nvidia-smi_-q_-x.txt": "exit 9\nNVIDIA-SMI has failed because it "
                "couldn't communicate with the NVIDIA driver.\n"
            },
            [("driver", Verdict.FAIL), ("cuda", Verdict.UNKNOWN)],
        ),
        ({"commands/nvidia-smi_-q_-x.txt": None}, [("driver", Verdict.UNKNOWN), ("cuda", Verdict.UNKNOWN)]),
        (
            {"commands/nv-fabricmanager_--version.txt": "Fabric Manager version is : 575.57.08\n"},
            [("driver", Verdict.FAIL)],
        ),
        (
            {
                "commands/systemctl_is-active_nvidia-fabricmanager_nvidia-persistenced_nvidia-imex.txt": (
                    "exit 3\nfailed\nactive\ninactive\n"
                )
            },
            [("driver", Verdict.FAIL)],
        ),
        (
            {
                "commands/systemctl_is-active_nvidia-fabricmanager_nvidia-persistenced_nvidia-imex.txt": (
                    "exit 3\ninactive\ninactive\ninactive\n"
                ),
                "commands/nv-fabricmanager_--version.txt": "Fabric Manager version is : 580.82.07\n",
                "commands/nvidia-smi_-q_-x.txt": smi(persistence_mode="Disabled"),
            },
            [("driver", Verdict.WARN), ("driver", Verdict.WARN)],
        ),
        ({"proc/modules": "nvidia 12 0 - Live 0x0\nnvidia_peermem 1 0 -\n"}, [("cuda", Verdict.FAIL)]),
        ({"commands/nvidia-smi_-q_-x.txt": smi(compute_mode="Prohibited")}, [("cuda", Verdict.FAIL)]),
        ({"commands/nvidia-smi_-q_-x.txt": smi(compute_mode="Exclusive_Process")}, [("cuda", Verdict.WARN)]),
        ({"commands/docker_info_--format_json_.Runtimes_.txt": '{"runc":{}}\n'}, [("runtime", Verdict.FAIL)]),
        (
            {
                "commands/docker_info_--format_json_.Runtimes_.txt": '{"runc":{}}\n',
                "etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n",
            },
            [],
        ),
        (
            {"commands/docker_info_--format_json_.Runtimes_.txt": "exit 1\npermission denied\n"},
            [("runtime", Verdict.UNKNOWN)],
        ),
        ({"commands/docker_info_--format_json_.Runtimes_.txt": None}, []),
        ({"commands/lspci_-vv.txt": "\t\tACSCtl:\tSrcValid+ TransBlk-\n"}, [("network", Verdict.FAIL)]),
        ({"commands/lspci_-vv.txt": "\tCapabilities: <access denied>\n"}, [("network", Verdict.UNKNOWN)]),
        ({"proc/modules": "nvidia 12 0 - Live 0x0\nnvidia_uvm 1 0 -\n"}, [("network", Verdict.WARN)]),
        ({"commands/modinfo_-F_version_nvidia.txt": "590.44.01\n"}, [("driver", Verdict.WARN)]),
        ({"commands/df_-B1_--output_size_dev_shm.txt": "x\n67108864\n"}, [("runtime", Verdict.WARN)]),
        (
            {"proc/self/limits": "Max locked memory         65536   65536  bytes\n"},
            [("network", Verdict.WARN)],
        ),
        (
            {"commands/chronyc_-c_tracking.txt": "A,10.0.0.1,3,1,0.0021,0,0,0,0,0,0,0,64.2,Normal\n"},
            [("time", Verdict.WARN)],
        ),
        (
            {"commands/chronyc_-c_tracking.txt": "A,10.0.0.1,3,1,-0.2,0,0,0,0,0,0,0,64.2,Normal\n"},
            [("time", Verdict.FAIL)],
        ),
        (
            {"commands/chronyc_-c_tracking.txt": "0,,0,0,0,0,0,0,0,0,0,0,0,Not synchronised\n"},
            [("time", Verdict.UNKNOWN)],
        ),
        (
            {"commands/chronyc_-c_tracking.txt": "exit 1\n506 Cannot talk to daemon\n"},
            [("time", Verdict.UNKNOWN)],
        ),
    ],
)
def test_each_problem_of_a_host_is_found_and_says_what_to_do(tmp_path, changes, expected):
    facts = read_host(machine(tmp_path, **changes))
    assert findings(facts) == expected
    assert all(one.next_step.endswith(".") for one in host_findings(facts, HostDemands(cards=8)))


def test_a_host_without_cards_is_not_asked_for_a_driver(tmp_path):
    facts = read_host(machine(tmp_path, **{"proc/modules": "ext4 1 0 - Live 0x0\n"}))
    assert host_findings(facts, HostDemands()) == ()


OTHER_KERNEL = {"proc/sys/kernel/osrelease": "6.8.0-41-generic\n"}


def compared(machine, firmware=None, images=()):
    return compared_facts(read_host(machine), firmware or {}, images)


def test_the_node_that_differs_is_named(tmp_path):
    nodes = {f"n{number}": compared(machine(tmp_path / f"n{number}")) for number in range(4)}
    nodes["n4"] = compared(machine(tmp_path / "n4", **OTHER_KERNEL))
    assert [(one.node, one.fact, one.value, one.others, one.share) for one in outliers(nodes)] == [
        ("n4", "kernel", "6.8.0-41-generic", "6.8.0-60-generic", "4 of 5")
    ]
    assert splits(nodes) == ()


def test_without_a_majority_nobody_is_blamed_and_the_difference_is_told(tmp_path):
    nodes = {
        "n1": compared(machine(tmp_path / "n1")),
        "n2": compared(machine(tmp_path / "n2", **OTHER_KERNEL)),
    }
    assert outliers(nodes) == ()
    assert [(one.fact, one.values) for one in splits(nodes)] == [
        ("kernel", {"6.8.0-60-generic": ("n1",), "6.8.0-41-generic": ("n2",)})
    ]


def images(digest, own):
    return f"vllm/vllm-openai:v0.11 sha256:{digest} sha256:01\nown:local <none> sha256:{own}\n"


def test_cards_firmware_images_and_rates_are_compared_too(tmp_path):
    usual = {
        "commands/nvidia-smi_-q_-x.txt": smi(vbios_version="96.00.74.00.01", gpu_part_number="A1"),
        "commands/docker_images.txt": images("aa", "02"),
    }
    other = {
        "commands/nvidia-smi_-q_-x.txt": smi(vbios_version="96.00.61.00.01", gpu_part_number="A2"),
        "commands/docker_images.txt": images("bb", "03"),
        "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
    }
    named = ("vllm/vllm-openai:v0.11", "own:local", "absent:1")
    nodes = {
        f"n{number}": compared(machine(tmp_path / f"n{number}", **files), {"BMC": version}, named)
        for number, (files, version) in enumerate([(usual, "1"), (usual, "1"), (other, "2")])
    }
    assert {one.fact: (one.node, one.value) for one in outliers(nodes)} == {
        "card_vbios": ("n2", "96.00.61.00.01"),
        "card_part": ("n2", "A2"),
        "infiniband_rates": ("n2", "1 x 200 Gbit/s"),
        "firmware BMC": ("n2", "2"),
        "image vllm/vllm-openai:v0.11": ("n2", "sha256:bb"),
        "image own:local": ("n2", "sha256:03"),
    }
    assert nodes["n0"]["image absent:1"].reason == Reason.ABSENT


SERVICES = "commands/systemctl_is-active_nvidia-fabricmanager_nvidia-persistenced_nvidia-imex.txt"
SWITCH = "07:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)\n"
SWITCHES = {"commands/lspci_-vv.txt": f"{SWITCH}\tACSCtl:\tSrcValid-\n"}
INACTIVE = {SERVICES: "exit 3\ninactive\nactive\ninactive\n"}
MANAGER = {"commands/nv-fabricmanager_--version.txt": "Fabric Manager version is : 580.82.07\n"}
DRIVER, RUNTIME = ("driver", Verdict.FAIL), ("runtime", Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("changes", "demands", "expected"),
    [
        ({**SWITCHES, **INACTIVE, **MANAGER}, {}, [DRIVER]),
        ({**SWITCHES, SERVICES: None}, {}, [("driver", Verdict.UNKNOWN)]),
        ({SERVICES: None}, {"fabric_manager": True}, [("driver", Verdict.UNKNOWN)]),
        (INACTIVE, {"fabric_manager": True}, [DRIVER]),
        # Bridges, or switches of other trays.
        (INACTIVE, {"links": True}, [("driver", Verdict.WARN)]),
        (
            {**INACTIVE, "commands/lspci_-vv.txt": None, "sys/class/infiniband/mlx5_0/ports/1/state": None},
            {"links": True},
            [("driver", Verdict.UNKNOWN)],
        ),
        ({"commands/nv-fabricmanager_--version.txt": None}, {}, [("driver", Verdict.UNKNOWN)]),
        ({"commands/docker_info_--format_json_.Runtimes_.txt": None}, {"containers": True}, [RUNTIME]),
        ({}, {"containers": True}, [RUNTIME]),  # configured, and no toolkit that tells its version
    ],
)
def test_a_fact_that_applies_and_was_not_read_is_unknown(tmp_path, changes, demands, expected):
    facts = read_host(machine(tmp_path, **changes))
    found = host_findings(facts, HostDemands(cards=8, **demands))
    assert expected == [(one.step, one.verdict) for one in found]


@pytest.mark.parametrize(
    "changes",
    [
        {"commands/modinfo_-F_version_nvidia.txt": None},
        {"commands/dkms_status.txt": "exit 1\npermission denied\n"},
        {"commands/df_-B1_--output_size_dev_shm.txt": None},
        {"proc/self/limits": None},
        {"sys/firmware/memmap/0/type": None},  # Secure Boot may be on, and who signed the module is unknown
    ],
)
def test_what_could_be_a_warning_at_most_leaves_the_warnings_open_and_no_step(tmp_path, changes):
    facts = read_host(machine(tmp_path, **changes))
    found = probe_hosts({"n1": facts}, {"n1": HostDemands(cards=8)})
    assert found["host_warnings", "n1"].value is None
    steps = ("module", "driver", "cuda", "runtime", "network")
    assert [0.0] * 5 == [found[f"host_{step}", "n1"].value for step in steps]


@pytest.mark.parametrize(("last", "verdict"), [("\x01", "enabled"), ("\x00", "disabled")])
def test_the_firmware_tells_of_secure_boot_where_mokutil_is_missing(tmp_path, last, verdict):
    name = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    facts = read_host(machine(tmp_path, **{name: f"\x06\x00\x00\x00{last}"}))
    assert f"SecureBoot {verdict}" == facts["secure_boot"].value


PTP = """sending: GET TIME_STATUS_NP
\t7cfe90.fffe.f56dfc-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -12610
\t\tgmPresent                  true
\t000200.fffe.000005-1 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              0
"""
TIMESYNC = """       Server: 10.0.0.1 (ntp.example)
Root distance: 2.311ms (max: 5s)
       Offset: -151us
        Delay: 421us
 Packet count: 8
"""
NO_CHRONY = {"commands/chronyc_-c_tracking.txt": None}
PMC, SYNCD = (
    "commands/pmc_-u_-b_0_GET_TIME_STATUS_NP.txt",
    "commands/env_LC_ALL_C_timedatectl_timesync-status.txt",
)


@pytest.mark.parametrize(
    ("files", "value", "detail"),
    [
        ({PMC: PTP}, "-0.000012610", "by pmc"),
        ({PMC: PTP.replace("true", "false"), SYNCD: TIMESYNC}, "-0.000151000", "by timesyncd"),
        ({SYNCD: TIMESYNC.replace("8\n", "0\n")}, None, "timesyncd does not tell an offset"),
        ({}, None, "chronyc is not installed"),
        ({PMC: "exit 1\nuds: bind failed: Permission denied\n"}, None, "pmc does not tell"),
    ],
)
def test_the_clock_is_told_by_ptp_or_timesyncd_where_there_is_no_chrony(tmp_path, files, value, detail):
    fact = read_host(machine(tmp_path, **NO_CHRONY, **files))["clock_offset_s"]
    assert (value, True) == (fact.value, detail in fact.detail), fact


def test_a_clock_is_compared_with_ours_as_far_as_the_round_trip_proves(tmp_path):
    nodes = {
        name: read_host(machine(tmp_path / name, **{"commands/date_s._N.txt": text}))
        for name, text in (("near", "now 0\n"), ("far", "now -0.5\n"), ("mute", "no moment\n"))
    }
    found = probe_hosts(nodes, {})
    assert found["clock_distance_s", "near"].value < 0.01
    assert 0.4 < found["clock_distance_s", "far"].value <= 0.5
    assert "good to" in found["clock_distance_s", "far"].detail
    assert found["clock_distance_s", "mute"].value is None


def test_a_tool_that_hangs_costs_a_host_its_deadline_once(tmp_path, monkeypatch):
    for name in ("nvidia-smi", "dkms", "chronyc"):
        script(tmp_path / name, "sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    begin = time.monotonic()
    facts = read_host(LocalRunner(), 2.0)
    assert time.monotonic() - begin < 9  # one after the other they would need ten
    assert {Reason.TIMEOUT} == {facts[name].reason for name in ("driver_answer", "dkms")}
    assert facts["kernel"].value


class Noting:
    """A machine of eight cards that notes how long each command may take."""

    name = "n1"

    def __init__(self, persistence):
        self.deadlines = {}
        self._persistence = persistence

    def run(self, command, deadline_s):
        self.deadlines[command.argv[0]] = deadline_s
        return Ran(text=f"inactive\n{self._persistence}\ninactive\n", status=3)

    def read(self, *_):
        return {
            f"/proc/driver/nvidia/gpus/0000:{place:02x}:00.0/information": Ran(text="", status=0)
            for place in range(8)
        }

    def close(self):
        pass


@pytest.mark.parametrize(("persistence", "patience_s"), [("active", 2.0), ("inactive", 14.0)])
def test_only_cards_that_sleep_are_waited_for(persistence, patience_s):
    host = Noting(persistence)
    read_host(host, 2.0)
    assert (patience_s, 2.0) == (host.deadlines["nvidia-smi"], host.deadlines["modinfo"])
