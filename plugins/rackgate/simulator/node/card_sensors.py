"""Sensors of a simulated card: power, temperature, clocks and counters, from the work of its engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackgate.simulator.card_state import CardState, Slot
from rackgate.simulator.knobs import CardKnobs

_SMOOTHING_S = 0.3
_HYSTERESIS_C = 5.0
_SM_CLOCK_MHZ = 1980
_GPU_IDLE = 0x1
_SW_POWER_CAP = 0x4
_SW_THERMAL_SLOWDOWN = 0x20
_HW_THERMAL_SLOWDOWN = 0x40
_WEIGHTS_MIB = 16384
_MIB_PER_TOKEN = 0.125
_TOTAL_MIB = 144384
_PCIE_LANES = 16
_PCIE_GENERATION = 5
_ALTERNATING_XIDS = (48, 74)


@dataclass(slots=True, kw_only=True)
class CardSensors:
    """A first-order thermal model: T approaches ambient + resistance x power with one time constant.

    Above the slowdown temperature the clock factor falls, which slows the engine through the shared state.
    A working power limit caps the power.
    """

    knobs: CardKnobs
    state: CardState
    power_w: float = 0.0
    temperature_c: float = 0.0
    energy_j: float = 0.0
    utilisation: float = 0.0
    capped: bool = False
    throttled: bool = False
    throttled_s: float = 0.0
    _work_s: float = 0.0
    _busy_s: float = 0.0
    _intensity: float = 0.0

    def __post_init__(self) -> None:
        self.power_w = self.knobs.idle_power_w
        self.temperature_c = self.knobs.ambient_c + self.knobs.thermal_c_per_w * self.power_w

    def tick(self, elapsed_s: float) -> None:
        """Advance by `elapsed_s` and write the clock factor."""
        if elapsed_s <= 0:
            return
        knobs, state = self.knobs, self.state
        reaches = float(knobs.work_reaches_card)
        work_s, busy_s = state[Slot.WORK_S] * reaches, state[Slot.BUSY_S] * reaches
        share = 1 - math.exp(-elapsed_s / _SMOOTHING_S)
        intensity = min(1.0, (work_s - self._work_s) / elapsed_s)
        utilisation = min(1.0, (busy_s - self._busy_s) / elapsed_s)
        self._intensity += share * (intensity - self._intensity)
        self.utilisation += share * (utilisation - self.utilisation)
        self._work_s, self._busy_s = work_s, busy_s
        dynamic_w = knobs.full_power_w + knobs.extra_power_w - knobs.idle_power_w
        wanted_w = knobs.idle_power_w + dynamic_w * self._intensity * self.clock_factor
        self.capped = knobs.power_limit_works and wanted_w > knobs.power_limit_w
        self.power_w = knobs.power_limit_w if self.capped else wanted_w
        self.energy_j += self.power_w * elapsed_s
        steady_c = knobs.ambient_c + knobs.thermal_c_per_w * self.power_w
        cooling = 1 - math.exp(-elapsed_s / knobs.thermal_time_constant_s)
        self.temperature_c += (steady_c - self.temperature_c) * cooling
        released_c = knobs.slowdown_c - _HYSTERESIS_C
        self.throttled = self.temperature_c >= (released_c if self.throttled else knobs.slowdown_c)
        self.throttled_s += elapsed_s * self.throttled
        state[Slot.CLOCK_FACTOR] = self.clock_factor

    @property
    def clock_factor(self) -> float:
        """Factor of the clock: 1.0, or less while the card is throttled."""
        return self.knobs.slowdown_clock_factor if self.throttled else 1.0

    def fields(self) -> dict[str, float]:
        """Return the card's values by their names in dcgm-exporter."""
        used_mib = round(_WEIGHTS_MIB + _MIB_PER_TOKEN * self.state[Slot.KV_TOKENS])
        if not self.state[Slot.SERVING]:
            used_mib = 0
        used_mib += self.knobs.memory_held_mib
        reasons = _SW_THERMAL_SLOWDOWN | _HW_THERMAL_SLOWDOWN if self.throttled else 0
        if not reasons and self.utilisation < 0.01:
            reasons = _GPU_IDLE
        reasons |= _SW_POWER_CAP * self.capped
        if self.utilisation >= 0.01:
            reasons |= self.knobs.clock_events
        return {
            "DCGM_FI_DEV_SM_CLOCK": round(_SM_CLOCK_MHZ * self.clock_factor),
            "DCGM_FI_DEV_MEMORY_TEMP": round(self.temperature_c + self.knobs.memory_hotter_c),
            "DCGM_FI_DEV_GPU_TEMP": round(self.temperature_c),
            "DCGM_FI_DEV_GPU_TEMP_LIMIT": round(self.knobs.slowdown_c - self.temperature_c),
            "DCGM_FI_DEV_POWER_USAGE": round(self.power_w, 3),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(self.energy_j * 1e3),
            "DCGM_FI_DEV_PSTATE": self.knobs.performance_state,
            "DCGM_FI_DEV_GPU_UTIL": round(100 * self.utilisation),
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": reasons,
            "DCGM_FI_DEV_XID_ERRORS": self._last_xid(),
            "DCGM_FI_DEV_FB_FREE": _TOTAL_MIB - used_mib,
            "DCGM_FI_DEV_FB_USED": used_mib,
            **self._health(),
        }

    def _last_xid(self) -> int:
        """Return the XID of the gauge; XIDs that come with work alternate between two codes."""
        came = int(self.knobs.xids_per_busy_s * self._busy_s)
        return _ALTERNATING_XIDS[came % 2] if came else self.knobs.last_xid

    def _health(self) -> dict[str, float]:
        """Return the power limit and the counters of memory and links."""
        knobs, busy_s = self.knobs, self._busy_s
        return {
            "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": knobs.power_limit_w,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": knobs.ecc_volatile_uncorrectable
            + int(knobs.ecc_errors_per_busy_s * busy_s),
            "DCGM_FI_DEV_ROW_REMAP_PENDING": knobs.row_remap_pending,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": knobs.row_remap_failed,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": knobs.remapped_rows_uncorrectable
            + int(knobs.remapped_rows_per_busy_s * busy_s),
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_PCIE_LINK_WIDTH": knobs.pcie_width,
            "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": _PCIE_LANES,
            "DCGM_FI_DEV_PCIE_LINK_GEN": knobs.pcie_generation if self.utilisation >= 0.01 else 1,
            "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": _PCIE_GENERATION,
            "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": 0,
            "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": round(self.throttled_s * 1e9),
            "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": 0,
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": int(knobs.pcie_replays_per_busy_s * busy_s),
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": int(knobs.nvlink_errors_per_busy_s * busy_s),
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0,
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0,
        }
