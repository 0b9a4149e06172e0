"""Canonical spelling of PCI addresses."""

from __future__ import annotations

import re


def canonical_pci(address: str) -> str | None:
    """Return a PCI address as `0000:c7:00.0` (lower case, four-digit domain), None if it is none."""
    found = re.fullmatch(
        r"(?:0000)?(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?", address.strip()
    )
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    if int(device, 16) > 0x1F:
        return None
    return f"{domain or '0000'}:{bus}:{device}.{function or 0}".lower()
