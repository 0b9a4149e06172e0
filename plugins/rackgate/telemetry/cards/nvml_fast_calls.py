"""Prepared NVML calls for the fast signals: no wrapper and no new object per call.

The library is the one that nvidia-ml-py loaded. A signal without a value is asked again through nvidia-ml-py,
which gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong
from functools import partial
from typing import Any

from rackgate.telemetry.cards.nvml_calls import BLANK_INTEGERS

_CORE, _SM = 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM


def brief_values(nvml: Any, handle: Any) -> Callable[[], list[float] | None]:
    """Return what gives the values of what is `REQUIRED` of a card, in its order; None if any has none.

    A library without one of the functions gives none.
    """
    library = nvml.nvmlLib
    temperature, power_mw, clock, reasons = c_uint(), c_uint(), c_uint(), c_ulonglong()
    try:
        calls = (
            partial(library["nvmlDeviceGetTemperature"], handle, _CORE, byref(temperature)),
            partial(library["nvmlDeviceGetPowerUsage"], handle, byref(power_mw)),
            partial(library["nvmlDeviceGetClockInfo"], handle, _SM, byref(clock)),
            partial(library["nvmlDeviceGetCurrentClocksEventReasons"], handle, byref(reasons)),
        )
    except AttributeError:
        return lambda: None
    ask_temperature, ask_power, ask_clock, ask_reasons = calls

    def values() -> list[float] | None:
        if ask_temperature() or ask_power() or ask_clock() or ask_reasons():
            return None
        told = (temperature.value, power_mw.value, clock.value, reasons.value)
        if not BLANK_INTEGERS.isdisjoint(told):
            return None
        return [float(told[0]), told[1] * 1e-3, float(told[2]), float(told[3])]

    return values
