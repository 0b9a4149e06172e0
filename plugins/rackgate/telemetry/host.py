"""Facts of a host from its files and tools: modules, driver, limits, shared memory, clock, links.

Everything is read below a root or through a runner, so that a folder can stand in for a machine. What
cannot be read is None with the reason beside it.
"""

from __future__ import annotations

import re

__all__ = ["driver_mismatch"]


def driver_mismatch(proc_version: str, said: str) -> tuple[str | None, str | None]:
    """Return (kernel module's version, library's version) from `/proc/driver/nvidia/version` and a message."""
    module = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*\d)", proc_version)
    library = re.search(r"NVML library version:\s*(\d[\d.]*\d)", said)
    return (module[1] if module else None, library[1] if library else None)
