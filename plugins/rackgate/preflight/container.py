"""Cards inside a container: what `nvidia-smi` lists in a real one, not what settings promise."""

from __future__ import annotations

import re
import secrets

from rackgate.hosts.pci import canonical_pci
from rackgate.hosts.runner import Command, Runner
from rackgate.nouns.measurement import ProbeResults, Reason
from rackgate.nouns.node import Card, Node
from rackgate.preflight.host_metrics import measured, not_measured

_REMOVAL_S = 10.0
_REFUSED = re.compile(
    r"could not select device driver|unresolvable CDI devices|nvidia-container-cli|unknown runtime specified",
    re.IGNORECASE,
)


def probe_container(node: Node, runner: Runner, image: str, deadline_s: float = 30.0) -> ProbeResults:
    """Run one container of a local image, and count the declared cards that it does not list.

    It is removed at its end and at the deadline, has no network, and no image is pulled. A daemon that
    cannot give cards makes all of them missing; without a daemon or image there is no value.
    """
    name, container = "cards_not_in_container", f"rackgate-cards-{secrets.token_hex(6)}"
    options = ("--rm", "--name", container, "--pull", "never", "--network", "none", "--gpus", "all")
    query = ("nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader")
    ran = runner.run(
        Command(
            argv=("docker", "run", *options, image, *query),
            grant="membership of the group docker (which is root's equal), or a rootless daemon",
            known_as="docker run nvidia-smi",
        ),
        deadline_s,
    )
    if ran.reason is Reason.TIMEOUT:  # the client has ended, the container may run
        runner.run(Command(argv=("docker", "rm", "--force", container)), _REMOVAL_S)
    said = ran.text + ran.error
    refused = _REFUSED.search(said)
    rows = [[cell.strip() for cell in line.split(",")] for line in ran.text.splitlines() if "," in line]
    listed = {row[0] for row in rows} | {canonical_pci(row[1]) for row in rows}
    if not refused and (not ran.ok or not rows):
        why = ran.detail or said.strip()[:200] or f"a container of {image} lists nothing"
        return {(name, node.name): not_measured(name, node.name, ran.reason, why)}
    lost = [card.name for card in node.cards if not _there(card, listed, len(rows))]
    text = f"not listed in a container of {image}: {', '.join(lost)}" if lost else f"{len(rows)} listed"
    if refused:
        lost, text = [card.name for card in node.cards], said.strip()[:200]
    return {(name, node.name): measured(name, node.name, len(lost), text, source="docker")}


def _there(card: Card, listed: set[str | None], count: int) -> bool:
    known = [one for one in (card.pci, card.uuid) if one is not None]
    return any(one in listed for one in known) if known else card.index < count
