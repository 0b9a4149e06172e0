"""Links and drives against the order: InfiniBand ports and partition, IMEX domain, NVMe drives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from rackgate.hosts.facts.fact import Fact
from rackgate.nouns.measurement import ProbeResults
from rackgate.nouns.node import Node
from rackgate.preflight.host_metrics import measured, not_measured


def probe_links(node: Node, facts: Mapping[str, Fact]) -> ProbeResults:
    """Return the differences of a node's links and drives from what the target declares."""
    looks = {
        "infiniband_ports_lost": (facts["infiniband"], _ports, node.expect.infiniband_ports),
        "partition_ports_outside": (facts["partitions"], _partition, node.expect.partition),
        "imex_nodes_lost": (facts["imex_domain"], _imex, node.expect.imex_nodes),
        "nvme_drives_lost": (facts["nvme_drives"], _drives, node.expect.nvme_drives),
    }
    found: ProbeResults = {}
    for name, (fact, look, declared) in looks.items():
        if declared is None:
            continue
        if fact.value is None:
            found[name, node.name] = not_measured(name, node.name, fact.reason, fact.detail)
            continue
        number, text = look(node, fact.value)
        found[name, node.name] = measured(name, node.name, number, text)
    return found


def _ports(node: Node, said: str) -> tuple[int, str]:
    declared = node.expect.infiniband_ports or 0
    ports = re.findall(r"(\S+): (\w+) ?(\d*)", said)
    rates = [int(rate) for _, state, rate in ports if state == "ACTIVE" and rate]
    usual = Counter(rates).most_common(1)[0][0] if rates else 0
    asked = node.expect.infiniband_rate or usual
    good = sum(1 for _, state, rate in ports if state == "ACTIVE" and int(rate or 0) >= asked)
    return max(0, declared - good), f"{good} of {declared} ports active at {asked} Gbit/s: {said}"


def _partition(node: Node, said: str) -> tuple[int, str]:
    wanted = f"0x{int(node.expect.partition or '0', 16) & 0x7FFF:04x} full"
    outside = [port for port in said.split("; ") if wanted not in port]
    return len(outside), f"{wanted} is asked; " + ("; ".join(outside) or "all ports are members")


def _imex(node: Node, said: str) -> tuple[int, str]:
    state, _, rest = said.partition(": ")
    ready = int(rest.split(" ")[0])
    lost = max(0, (node.expect.imex_nodes or 0) - ready)
    text = f"the domain is {state}, {rest}, {node.expect.imex_nodes} declared"
    return lost or int(state != "UP"), text


def _drives(node: Node, said: str) -> tuple[int, str]:
    declared = node.expect.nvme_drives or 0
    return max(0, declared - int(said)), f"{said} of {declared} live"
