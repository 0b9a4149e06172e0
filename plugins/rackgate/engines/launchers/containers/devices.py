"""The cards of a container: how they are asked for, and whether they arrived."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackgate.engines.launchers.settings import COUNT, TEXT, TEXTS, Key, text, texts
from rackgate.nouns.target import EngineSpec

DEVICE_KEYS = {
    "device_ids": Key(kind=TEXTS),
    "device_count": Key(kind=COUNT),
    "cdi_devices": Key(kind=TEXTS),
    "device_driver": Key(kind=TEXT),
}
"""At most one of ids (indexes, UUIDs, MIG instances), a count, and CDI names; without any: the cards."""

_LISTED = re.compile(r"^\s*(?:GPU \d+: |MIG \S+\s+Device\s+\d+:)", re.MULTILINE)
_LOST = re.compile(r"Failed to initialize NVML: Unknown Error")


def one_request(
    *,
    ids: Sequence[str] = (),
    count: int | None = None,
    driver: str | None = None,
    capabilities: Sequence[str] = ("gpu",),
) -> dict[str, Any]:
    """Return the arguments of one `DeviceRequest`; raises `ValueError` for both or neither of the two.

    A daemon refuses both, and some start a container without any card for neither, without a word.
    """
    if bool(ids) == (count is not None):
        raise ValueError("a device request needs either ids or a count, never both or neither")
    request: dict[str, Any] = {"device_ids": list(ids)} if ids else {"count": count}
    request["capabilities"] = [list(capabilities)] if capabilities else []
    return request if driver is None else {**request, "driver": driver}


def device_problems(settings: Mapping[str, object]) -> list[str]:
    """Return what is wrong with how the cards are asked for."""
    ways = [name for name in ("device_ids", "device_count", "cdi_devices") if name in settings]
    found = [] if len(ways) < 2 else [f"only one of {', '.join(map(repr, ways))} can say which cards"]
    names = settings.get("cdi_devices")
    if isinstance(names, list | tuple):
        found += [
            f"'cdi_devices': a CDI name is VENDOR/CLASS=NAME, not {name!r}"
            for name in names
            if isinstance(name, str) and not re.fullmatch(r"[\w.-]+/[\w.-]+=[\w.:-]+", name)
        ]
    return found


def device_request(spec: EngineSpec) -> dict[str, Any] | None:
    """Return the arguments of the one device request; None for an engine without cards.

    The settings win over the engine's cards; an empty list asks for none.
    """
    settings = spec.settings
    driver = text(settings, "device_driver")
    if "device_count" in settings:
        count = settings["device_count"]
        return one_request(count=-1 if count == "all" else int(str(count)), driver=driver)
    if "cdi_devices" in settings:
        names = texts(settings, "cdi_devices")
        return one_request(ids=names, driver="cdi", capabilities=()) if names else None
    ids = texts(settings, "device_ids")
    if "device_ids" not in settings:
        ids = tuple(card.rpartition("gpu")[2] for card in spec.cards)
    return one_request(ids=ids, driver=driver) if ids else None


def wanted_cards(request: Mapping[str, Any] | None) -> int | None:
    """Return how many cards a container must see; None if the request does not say, as `all` does."""
    if request is None:
        return 0
    if "count" in request:
        return None if request["count"] == -1 else int(request["count"])
    names = [str(name) for name in request["device_ids"]]
    return None if any(name.endswith("=all") for name in names) else len(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    """What `nvidia-smi -L` said, in a container or on the node; `cards` is None if it cannot tell."""

    exit_code: int
    said: str

    @property
    def cards(self) -> int | None:
        """How many cards (or MIG instances, where there are any) it lists."""
        if self.exit_code in (126, 127):
            return None
        listed = _LISTED.findall(self.said)
        instances = [line for line in listed if "MIG" in line]
        return len(instances or listed)


def compare_views(inside: CardView, node: CardView | None, wanted: int | None) -> tuple[str, str]:
    """Return (class, message) of what is wrong with a container's cards; empty texts if nothing is.

    `container_lost_gpu`: the node sees its cards and the container does not, which is no fault of the
    hardware. `cards_not_as_asked`: another number than asked for.
    """
    seen = inside.cards
    if seen is None:
        return "", ""
    on_node = node.cards if node else None
    if seen == 0 and _LOST.search(inside.said):
        node_says = "the node was not asked" if on_node is None else f"the node sees {on_node}"
        name = "container_lost_gpu" if on_node else "gpu_unreachable"
        return name, f"the container sees no card ({inside.said.strip()[:120]}); {node_says}"
    if wanted is not None and seen != wanted:
        return "cards_not_as_asked", f"the container sees {seen} cards, {wanted} were asked for"
    if wanted is None and seen == 0:
        return "cards_not_as_asked", "the container sees no card, all were asked for"
    return "", ""


def node_view(limit_s: float = 10.0) -> CardView | None:
    """Return what this machine's own `nvidia-smi -L` says; None if it is not here or hangs."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return CardView(exit_code=done.returncode, said=done.stdout + done.stderr)
