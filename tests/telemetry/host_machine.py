"""A machine on paper, for the triage of hosts."""

from rackgate.hosts.runner import RootRunner


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
        "sys/firmware/memmap/0/type": "System RAM\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "commands/nvidia-smi_-q_-x.txt": smi(),
        "commands/docker_info_--format_json_.Runtimes_.txt": '{"nvidia":{},"runc":{}}\n',
        "commands/nv-fabricmanager_--version.txt": "Fabric Manager version is : 580.82.07\n",
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
