"""Identities of cards, driver versions and the NVLink domain by NVML."""

from __future__ import annotations

from typing import Any

from rackgate.hosts.pci import canonical_pci
from rackgate.telemetry.cards.nvml import fabric_info
from rackgate.telemetry.cards.nvml_calls import attempt


def card_facts(nvml: Any, handle: Any) -> dict[str, str | None]:
    """Return what a card is: UUID, serial, part, board, VBIOS, PCI address, name, fabric domain."""
    calls = {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "serial": lambda: nvml.nvmlDeviceGetSerial(handle),
        "part": lambda: nvml.nvmlDeviceGetBoardPartNumber(handle),
        "board": lambda: f"0x{nvml.nvmlDeviceGetBoardId(handle):x}",
        "vbios": lambda: nvml.nvmlDeviceGetVbiosVersion(handle),
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "pci": lambda: canonical_pci(nvml.nvmlDeviceGetPciInfo(handle).busId),
        "persistence": lambda: str(nvml.nvmlDeviceGetPersistenceMode(handle)),
        "ecc": lambda: str(nvml.nvmlDeviceGetEccMode(handle)[0]),
        "fabric": lambda: _domain(fabric_info(nvml, handle)),
    }
    found = {}
    for name, call in calls.items():
        value, refused = attempt(name, call)
        found[name] = None if refused is not None or value is None else _text(value)
    return found


def _domain(info: Any) -> str | None:
    digits = bytes(info.clusterUuid).hex()
    if not int(digits, 16) or info.state != 3:
        return None
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{uuid}/{info.cliqueId}"


def driver_facts(nvml: Any) -> dict[str, str | None]:
    """Return versions of driver, library and CUDA."""
    found: dict[str, str | None] = {}
    for name, call in (
        ("driver", nvml.nvmlSystemGetDriverVersion),
        ("library", nvml.nvmlSystemGetNVMLVersion),
        ("cuda", lambda: _cuda(nvml.nvmlSystemGetCudaDriverVersion_v2())),
    ):
        value, refused = attempt(name, call)
        found[name] = None if refused is not None else _text(value)
    return found


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
