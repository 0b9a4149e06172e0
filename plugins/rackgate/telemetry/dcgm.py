"""dcgm-exporter's text page -> readings; blanks, sentinels and absent series are None with a reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from rackgate.measurement import Reason
from rackgate.telemetry.reading import FIELDS, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rackgate.target import Card, Node

__all__ = ["is_blank", "parse_page"]

_NAMES = {
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("clock_event_reasons", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_event_reasons", 1.0),
    "DCGM_FI_DEV_GPU_UTIL": ("utilisation_pct", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
}

# DCGM's blank values start here and count up: blank, not found, not supported, no permission.
_BLANKS = ((0x7FFFFFF0, 0x7FFFFFFF), (0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFFF), (2.0**47, 2.0**47 + 3))


def is_blank(value: float) -> bool:
    """Return whether a number is one of DCGM's sentinels (int32, int64, fp64) or no number."""
    return not math.isfinite(value) or any(low <= value <= high for low, high in _BLANKS)


def parse_page(text: str, node: Node, t_ns: int) -> list[Reading]:
    """Return one reading for each declared card and field; raises ValueError if the text is not a page."""
    found: dict[tuple[str, str], float] = {}
    seen: set[str] = set()
    for labels, name, value in _samples(text):
        card = _card_of(labels, node)
        if card is None:
            continue
        seen.add(card.name)
        # The parser gives a counter the suffix that its own format asks for.
        field, factor = _NAMES.get(name.removesuffix("_total"), ("", 1.0))
        if field:
            # Several series of one card (per process or pod) repeat one value: they are never summed.
            found.setdefault((card.name, field), value if is_blank(value) else value * factor)
    return [
        _reading(card.name, field, found.get((card.name, field)), node.name, t_ns, lost=card.name not in seen)
        for card in node.cards
        for field in FIELDS
    ]


def _reading(entity: str, field: str, value: float | None, node: str, t_ns: int, *, lost: bool) -> Reading:
    if value is not None and not is_blank(value):
        return Reading(t_ns, node, entity, field, value)
    if lost:
        return Reading(
            t_ns, node, entity, field, None, Reason.ABSENT, "the exporter lists no series of this card"
        )
    if value is None:
        return Reading(t_ns, node, entity, field, None, Reason.ABSENT, "the exporter has no such series")
    return Reading(
        t_ns, node, entity, field, None, Reason.BLANK, f"the exporter says {value:.0f}, DCGM's blank"
    )


def _samples(text: str) -> Iterator[tuple[dict[str, str], str, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.labels, sample.name, sample.value


def _card_of(labels: dict[str, str], node: Node) -> Card | None:
    if labels.get("GPU_I_ID"):  # a MIG instance is not the card
        return None
    uuid = labels.get("UUID") or labels.get("uuid")
    by_uuid = next((card for card in node.cards if uuid and card.uuid == uuid), None)
    if by_uuid is not None:
        return by_uuid
    index = labels.get("gpu", labels.get("GPU", ""))
    return next((card for card in node.cards if str(card.index) == index and not (uuid and card.uuid)), None)
