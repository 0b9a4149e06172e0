import os
import stat
import time
from pathlib import Path

import pytest
from waiting import until

from rackgate.measurement import Reason
from rackgate.telemetry.host import FACTS, read_host
from rackgate.telemetry.host_findings import host_findings, outliers
from rackgate.telemetry.runner import Command, LocalRunner, RootRunner
from rackgate.verdict import Verdict


def smi(**changes):
    """One card as `nvidia-smi -q -x` prints it."""
    known = {"persistence_mode": "Enabled", "compute_mode": "Default", **changes}
    card = "".join(f"<{name}>{text}</{name}>" for name, text in known.items())
    versions = "<driver_version>580.82.07</driver_version><cuda_version>13.0</cuda_version>"
    return f'<nvidia_smi_log>{versions}<gpu id="00000000:1B:00.0">{card}</gpu></nvidia_smi_log>\n'


def machine(root, **changes):
    """Write a machine with one healthy driver below a folder."""
    files = {
        "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "proc/sys/kernel/random/boot_id": "11111111-2222\n",
        "proc/modules": "nvidia 12 0 - Live 0x0 (POE)\nnvidia_uvm 1 0 -\nnvidia_peermem 1 0 -\n",
        "proc/driver/nvidia/version": (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release\n"
        ),
        "proc/meminfo": "MemTotal:  2113929216 kB\nHugePages_Total:  512\n",
        "proc/self/limits": "Max locked memory         unlimited            unlimited            bytes\n",
        "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "commands/nvidia-smi_-q_-x.txt": smi(),
        "commands/docker_info_--format_json_.Runtimes_.txt": '{"nvidia":{},"runc":{}}\n',
        "commands/lspci_-vv.txt": "\t\tACSCtl:\tSrcValid- TransBlk-\n",
        "commands/modinfo_-F_version_nvidia.txt": "580.82.07\n",
        "commands/df_-B1_--output_size_dev_shm.txt": "      1B-blocks\n1082331758592\n",
        "commands/chronyc_-c_tracking.txt": "A,10.0.0.1,3,1,-0.000012,0,0,0,0,0,0,0,64.2,Normal\n",
        "commands/systemctl_is-active_nvidia-fabricmanager_nvidia-persistenced_nvidia-imex.txt": (
            "exit 3\nactive\nactive\ninactive\n"
        ),
    }
    for name, text in {**files, **changes}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    return RootRunner(root)


def findings(facts):
    return [(one.step, one.verdict) for one in host_findings(facts, cards=8)]


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
    assert all(one.next_step.endswith(".") for one in host_findings(facts, cards=8))


def test_a_host_without_cards_is_not_asked_for_a_driver(tmp_path):
    facts = read_host(machine(tmp_path, **{"proc/modules": "ext4 1 0 - Live 0x0\n"}))
    assert host_findings(facts, cards=0) == ()


def test_the_node_that_differs_is_named(tmp_path):
    nodes = {f"n{number}": read_host(machine(tmp_path / f"n{number}")) for number in range(4)}
    nodes["n4"] = read_host(machine(tmp_path / "n4", **{"proc/sys/kernel/osrelease": "6.8.0-41-generic\n"}))
    assert [(one.node, one.fact, one.value, one.others, one.share) for one in outliers(nodes)] == [
        ("n4", "kernel", "6.8.0-41-generic", "6.8.0-60-generic", "4 of 5")
    ]


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_refusal_names_the_smallest_grant(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tool = script(
        tmp_path / "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    )
    ran = LocalRunner().run(Command(argv=(tool,), root=True, grant="the group adm"), 20.0)
    assert (ran.reason, "it needs the group adm" in ran.detail) == (Reason.NO_PERMISSION, True)


def test_sudo_is_tried_only_where_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(tmp_path / "sudo", f"printf '%s ' \"$@\" >> {tmp_path}/asked; echo fine")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = script(tmp_path / "tool", "echo 'permission denied' >&2; exit 1")
    command = Command(argv=(tool, "--all"))
    assert LocalRunner().run(command, 20.0).reason == Reason.NO_PERMISSION
    assert not (tmp_path / "asked").exists()
    assert LocalRunner(sudo=True).run(command, 20.0).text == "fine\n"
    assert (tmp_path / "asked").read_text() == f"-n {tool} --all "


def test_a_sudo_that_wants_a_password_is_no_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(tmp_path / "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tool = script(tmp_path / "tool", "echo 'permission denied' >&2; exit 1")
    ran = LocalRunner(sudo=True).run(Command(argv=(tool,)), 20.0)
    assert (ran.reason, "a sudoers rule" in ran.detail) == (Reason.NO_PERMISSION, True)


def test_a_local_command_that_hangs_takes_its_children_with_it(tmp_path):
    tool = script(tmp_path / "hang", f"sleep 600 & echo $! > {tmp_path}/child; wait")
    begin = time.monotonic()
    ran = LocalRunner().run(Command(argv=(tool,)), 1.0)
    assert (ran.reason, time.monotonic() - begin < 60) == (Reason.TIMEOUT, True)
    stat = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def gone():
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(gone)


def test_a_tool_that_is_not_there_is_missing():
    ran = LocalRunner().run(Command(argv=("no-such-tool-here",)), 20.0)
    assert (ran.reason, ran.detail) == (Reason.TOOL_MISSING, "no-such-tool-here is not installed")
