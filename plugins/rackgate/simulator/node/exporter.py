"""The metrics page of a simulated node, in the format of dcgm-exporter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackgate.simulator.knobs import CardKnobs
from rackgate.simulator.node.card_sensors import CardSensors

_HELP = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Memory temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": ("gauge", "Distance to the slowdown temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "Total energy consumption since boot (in mJ)."),
    "DCGM_FI_DEV_PSTATE": ("gauge", "Performance state (P-State) 0-15. 0=highest"),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("gauge", "Current clock event reasons (bitmask)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("gauge", "Enforced power limit (in W)."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Total number of double-bit volatile ECC errors."),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("gauge", "Whether remapping of rows is pending."),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether remapping of rows has failed."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (
        "counter",
        "Number of remapped rows for uncorrectable errors.",
    ),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "Number of remapped rows for correctable errors."),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("gauge", "PCIe link width."),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ("gauge", "Maximum PCIe link width."),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("gauge", "PCIe link generation."),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": ("gauge", "Maximum PCIe link generation."),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": (
        "counter",
        "Throttling due to software thermal slowdown (in ns).",
    ),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": (
        "counter",
        "Throttling due to hardware thermal slowdown (in ns).",
    ),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": (
        "counter",
        "Throttling due to hardware power brake (in ns).",
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "Total number of PCIe retries."),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (
        "counter",
        "Total number of NVLink flow-control CRC errors.",
    ),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("counter", "Total number of NVLink retries."),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("counter", "Total number of NVLink recovery errors."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
}

_BLANK_FLOAT = "140737488355328.000000"  # DCGM_FP64_BLANK
_BLANK_INTEGER = "9223372036854775792"  # DCGM_INT64_BLANK
_FLOATS = frozenset({"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterCard:
    """A card of the exporter: its labels, its sensors, and the knobs of its telemetry."""

    node: str
    index: int
    uuid: str
    serial: str
    pci: str
    model: str
    knobs: CardKnobs
    sensors: CardSensors

    @property
    def labels(self) -> str:
        """The labels of each line of the card."""
        return (
            f'gpu="{self.index}",UUID="{self.uuid}",pci_bus_id="0000{self.pci.upper()}",'
            f'device="nvidia{self.index}",modelName="{self.model}",Hostname="{self.node}",'
            f'DCGM_FI_DEV_SERIAL="{self.knobs.serial or self.serial}"'
        )


def render_exporter(cards: Sequence[ExporterCard]) -> bytes:
    """Return the page; an absent card has no lines."""
    shown = [
        (card, card.labels, card.sensors.fields()) for card in cards if not card.knobs.absent_from_exporter
    ]
    lines = []
    for name, (kind, text) in _HELP.items():
        rows = [
            f"{name}{{{labels}}} {_value(card, name, values[name])}"
            for card, labels, values in shown
            if name not in card.knobs.absent_fields
        ]
        if rows:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *rows]
    return ("\n".join(lines) + "\n").encode()


def _value(card: ExporterCard, name: str, value: float) -> str:
    if name in card.knobs.blank_fields:
        return _BLANK_FLOAT if name in _FLOATS else _BLANK_INTEGER
    return f"{value:.6f}" if name in _FLOATS else str(value)
