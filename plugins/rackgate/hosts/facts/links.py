"""Host facts about links and drives: InfiniBand, NVSwitches, the IMEX domain, NVMe."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from rackgate.hosts.facts.fact import Fact
from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason

_FULL_MEMBER = 0x8000


def ports(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    """Return `DEVICE: STATE RATE` of each InfiniBand or RoCE port."""
    states = {path: ran.text for path, ran in files.items() if re.search(r"/ports/\d+/state$", path)}
    if not states:
        return Fact(None, Reason.ABSENT, "no InfiniBand port here")
    parts = []
    for path, text in sorted(states.items()):
        device = path.split("/")[4]
        rate = files.get(path.removesuffix("state") + "rate")
        parts.append(f"{device}: {text.split(':')[-1].strip()} {rate.text.strip() if rate else ''}".strip())
    return Fact("; ".join(parts))


def nic_firmware(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    """Return each version of firmware among the InfiniBand cards."""
    versions = {ran.text.strip() for path, ran in files.items() if path.endswith("/fw_ver")}
    if not versions:
        return Fact(None, Reason.ABSENT, "no InfiniBand card here")
    return Fact(", ".join(sorted(versions)))


def partitions(_: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    """Return the partitions of each port as `DEVICE/PORT: 0x7fff full, 0x0012 limited`."""
    ran = commands["pkeys"]
    if ran.reason is not None:
        return Fact(None, ran.reason, ran.detail)
    found: dict[str, list[str]] = {}
    for device, port, key in re.findall(
        r"infiniband/([^/\s]+)/ports/(\d+)/pkeys/\d+:(0x[0-9a-fA-F]{4})", ran.text
    ):
        number = int(key, 16)
        member = "full" if number & _FULL_MEMBER else "limited"
        found.setdefault(f"{device}/{port}", []).append(f"0x{number & ~_FULL_MEMBER:04x} {member}")
    if not found:
        return Fact(None, Reason.ABSENT, "no InfiniBand port tells its partitions")
    return Fact("; ".join(f"{port}: {', '.join(keys)}" for port, keys in sorted(found.items())))


def nvswitches(files: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    """Return how many NVSwitches the node has of its own: those of an NVL72 are in other trays."""
    listed = sum(1 for path in files if path.startswith("/proc/driver/nvidia-nvswitch/devices/"))
    ran = commands["bridges"]
    if listed:
        return Fact(str(listed))
    if not ran.ok:
        return Fact(None, ran.reason or Reason.UNSUPPORTED, ran.detail)
    return Fact(str(len(re.findall(r"^\S+ .*NVIDIA.*NVSwitch", ran.text, re.MULTILINE))))


def imex_domain(_: Mapping[str, Ran], commands: Mapping[str, Ran]) -> Fact:
    """Return `STATE: N of M ready` of the IMEX domain that the node is in."""
    ran = commands["imex_domain"]
    if ran.reason is not None:
        return Fact(None, ran.reason, ran.detail)
    try:
        said = json.loads(ran.text)
        state, nodes = str(said["status"]), dict(said.get("nodes") or {})
        ready = sum(1 for one in nodes.values() if one.get("status") == "READY")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Fact(None, Reason.UNSUPPORTED, ran.detail or "`nvidia-imex-ctl -N -j` gives no state")
    return Fact(f"{state}: {ready} of {len(nodes)} ready")


def nvme_drives(files: Mapping[str, Ran], _: Mapping[str, Ran]) -> Fact:
    """Return how many NVMe controllers are live; none is an answer where the kernel can be asked."""
    states = [
        ran.text.strip() for path, ran in files.items() if re.match(r"/sys/class/nvme/[^/]+/state", path)
    ]
    if not states and not any(path.startswith("/sys/") for path in files):
        return Fact(None, Reason.ABSENT, "nothing below /sys can be read")
    return Fact(str(states.count("live")))
