"""Files and commands behind the facts of a host, each with the smallest grant that it needs."""

from __future__ import annotations

from rackgate.hosts.facts.clock import CLOCK_COMMANDS
from rackgate.hosts.runner import Command

FILES = (
    "/proc/sys/kernel/osrelease",
    "/proc/modules",
    "/proc/driver/nvidia/version",
    "/proc/meminfo",
    "/proc/self/limits",
    "/proc/net/dev",
    "/proc/driver/nvidia/gpus/*/information",
    "/proc/driver/nvidia-nvswitch/devices/*/information",
    "/sys/module/nvidia/version",
    "/sys/firmware/memmap/0/type",
    "/sys/firmware/efi/fw_platform_size",
    "/sys/firmware/efi/efivars/SecureBoot-*",
    "/sys/class/nvme/*/state",
    "/sys/class/net/lo/operstate",
    "/sys/kernel/security/lockdown",
    "/etc/docker/daemon.json",
    "/etc/cdi/*.yaml",
    "/var/run/cdi/*.yaml",
    "/etc/os-release",
    "/sys/class/infiniband/*/ports/*/state",
    "/sys/class/infiniband/*/ports/*/rate",
    "/sys/class/infiniband/*/fw_ver",
)
"""Patterns of the files behind facts."""

_SHM = "/dev/shm"  # noqa: S108 - it is looked at, nothing is put there
COMMANDS = {
    **CLOCK_COMMANDS,
    "df_shm": Command(argv=("df", "-B1", "--output=size", _SHM)),
    "services": Command(
        argv=("systemctl", "is-active", "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex")
    ),
    "nvidia_smi": Command(argv=("nvidia-smi", "-q", "-x"), grant="access to /dev/nvidiactl"),
    "nvlink": Command(argv=("nvidia-smi", "nvlink", "--status"), grant="access to /dev/nvidiactl"),
    "library_version": Command(argv=("modinfo", "-F", "version", "nvidia")),
    "signer": Command(argv=("modinfo", "-F", "signer", "nvidia")),
    "fabric_manager": Command(argv=("nv-fabricmanager", "--version")),
    "toolkit": Command(argv=("nvidia-ctk", "--version")),
    "bridges": Command(argv=("lspci", "-vv"), root=True, grant="CAP_SYS_ADMIN for `lspci -vv`"),
    "cards": Command(argv=("nvidia-smi", "-L"), grant="access to /dev/nvidiactl"),
    "imex_domain": Command(
        argv=("nvidia-imex-ctl", "-N", "-j"), grant="read access to /etc/nvidia-imex/config.cfg"
    ),
    "pkeys": Command(
        argv=("sh", "-c", "grep -Hv 0x0000 /sys/class/infiniband/*/ports/*/pkeys/*"), known_as="pkeys"
    ),
    "images": Command(
        argv=(
            *("docker", "images", "--no-trunc", "--format"),
            "{{.Repository}}:{{.Tag}} {{.Digest}} {{.ID}}",
        ),
        grant="membership of the group docker (which is root's equal), or a rootless daemon",
        known_as="docker images",
    ),
    "dkms": Command(argv=("dkms", "status")),
    "secure_boot": Command(argv=("mokutil", "--sb-state")),
    "docker": Command(
        argv=("docker", "info", "--format", "{{json .Runtimes}}"),
        grant="membership of the group docker (which is root's equal), or a rootless daemon",
    ),
}
"""Commands by name."""

DRIVERS_TOOL = {"nvidia_smi": "driver_answer", "nvlink": "nvlinks", "cards": "cards_listed"}
"""Commands that ask the driver and may hang, and the fact that holds each one's output."""
