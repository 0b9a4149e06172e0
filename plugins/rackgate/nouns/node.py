"""A machine of the rack and its cards: what they are, what they were ordered with, how they may be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


def vendor_of(sku: str | None) -> str:
    """Return the vendor of a card by its name: MI300X and its kin are AMD's."""
    return "amd" if sku is not None and sku.upper().startswith("MI") else "nvidia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One accelerator. `name` is `NODE/gpuINDEX`, the entity in checks and records.

    `pci` is its PCI address as `0000:1b:00.0`; it assigns the kernel's messages to the card.
    """

    name: str
    node: str
    index: int
    uuid: str | None = None
    serial: str | None = None
    pci: str | None = None
    sku: str | None = None
    vendor: str = "nvidia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What a node was ordered with. `pins` are exact versions by name, `firmware` by Redfish's id.

    `processes` names the programs that may hold a card, `nvlinks` the links of a card,
    `infiniband_ports` the ports of a node that are active, at `infiniband_rate` Gbit/s and as full members
    of `partition` (a key such as `0x8001`); `fabric` says that all cards are in one NVLink domain, of
    which `imex_nodes` are ready; `mig` is the number of MIG instances of a card or the profile of each,
    `nvme_drives` those of a node, `images` the digest of images by name. None is not agreed.
    `container_image` is there already and has `nvidia-smi`.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    firmware: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    nvlinks: int | None = None
    infiniband_ports: int | None = None
    infiniband_rate: int | None = None
    partition: str | None = None
    fabric: bool = False
    imex_nodes: int | None = None
    mig: int | tuple[str, ...] | None = None
    nvme_drives: int | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    container_image: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redfish:
    """A node's management controller. The variables named hold user and password of a read-only role.

    `ca_file` signed the controller's certificate, `pinned_file` is that very certificate.
    """

    url: str
    user_env: str
    password_env: str
    session: bool = True
    ca_file: str | None = None
    pinned_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """How one node may be asked beyond its exporter.

    `cards` says where its cards' signals come from, None for the exporter if one is declared. `ssh` is
    what one would give to `ssh`, `local` says that the node is this machine, `sudo` that `sudo -n` may
    be tried. `docker` is a context of Docker's or a daemon's address, where one container of
    `docker_image`, which is there already, looks at the node. `root` is a folder that stands in for the
    machine; a bare name is one that ships.
    """

    cards: str | None = None
    ssh: str | None = None
    docker: str | None = None
    docker_image: str | None = None
    local: bool = False
    sudo: bool = False
    root: str | None = None
    kernel_log: str | None = None
    redfish: Redfish | None = None

    @property
    def reaches_host(self) -> bool:
        """Whether files and commands of the host can be had."""
        return self.local or any(way is not None for way in (self.ssh, self.docker, self.root))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine with its cards; `exporter_url` is its dcgm-exporter's metrics page."""

    name: str
    cards: tuple[Card, ...] = ()
    exporter_url: str | None = None
    access: NodeAccess = field(default_factory=NodeAccess)
    expect: Expect = field(default_factory=Expect)

    def cards_read_from(self, prometheus: str | None) -> str:
        """Return the one source that its cards' signals come from, where the rack has this Prometheus."""
        usual = "exporter" if self.exporter_url or not prometheus else "prometheus"
        return self.access.cards or usual
