"""Readers of `nvidia-smi` query tables and of its error sentences."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackgate.hosts.pci import canonical_pci

_UNSUPPORTED = frozenset({"n/a", "not supported", "not available", "not active", "disabled", ""})
_FAULTS = {"gpu requires reset": "reset required", "gpu is lost": "lost"}
_LOST = re.compile(
    r"Unable to determine the device handle for GPU\s*([0-9A-Fa-f:.]+?):\s+(GPU is lost|[^.\n]+)",
    re.IGNORECASE,
)
_UNITS = re.compile(r"\s*(?:%|MiB|W|MHz|C)$")


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of one card: its text, the number if it is one, and the fault if it names one."""

    text: str
    number: float | None = None
    fault: str = ""
    supported: bool = True


@dataclass(frozen=True, slots=True)
class SmiRow:
    """One card. `state` is "ok" or "fault: ..." with the first fault that any column names."""

    cells: Mapping[str, Cell]

    @property
    def state(self) -> str:
        """What the columns say of the card; a column that is not supported says nothing."""
        fault = next((cell.fault for cell in self.cells.values() if cell.fault), "")
        return f"fault: {fault}" if fault else "ok"

    @property
    def mig(self) -> bool | None:
        """Whether the card is cut into instances; None if it cannot be or was not asked."""
        mode = self.cells.get("mig.mode.current")
        return None if mode is None or not mode.supported else mode.text.lower() == "enabled"

    def number(self, column: str) -> float | None:
        """Return a column's number, None if it holds a word."""
        return self.cells[column].number if column in self.cells else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiFault:
    """A sentence that stands where a card's data should be. `pci` is None if the address is none."""

    kind: str
    pci: str | None
    raw: str


def parse_query(text: str, columns: Sequence[str] = ()) -> tuple[SmiRow, ...]:
    """Return one row a card; `columns` name them if the table has no header of its own."""
    lines = [line for line in csv.reader(text.splitlines(), skipinitialspace=True) if line]
    if not columns and lines:
        columns = [re.sub(r"\s*\[.*\]$", "", name.strip()) for name in lines.pop(0)]
    return tuple(
        SmiRow({name: _cell(name, value.strip()) for name, value in zip(columns, line, strict=False)})
        for line in lines
        if len(line) == len(columns)
    )


def _cell(column: str, text: str) -> Cell:
    word = text.strip("[]").strip()
    if column == "mig.mode.current" and word.lower() in ("enabled", "disabled"):
        return Cell(text)
    if word.lower() in _UNSUPPORTED:
        return Cell(text, supported=False)
    if column == "pstate" and re.fullmatch(r"P\d+", word):
        return Cell(text, float(word[1:]))
    try:
        return Cell(text, float(_UNITS.sub("", word)))
    except ValueError:
        bracketed = text.startswith("[") or word.upper().startswith("ERR")
        return Cell(text, fault=_FAULTS.get(word.lower(), word) if bracketed else "")


def lost_cards(text: str) -> tuple[SmiFault, ...]:
    """Return every card of which there is a sentence in place of data."""
    return tuple(
        SmiFault(
            kind="gpu_lost" if "lost" in found[2].lower() else "_".join(found[2].lower().split()),
            pci=canonical_pci(found[1]),
            raw=found[1],
        )
        for found in _LOST.finditer(text)
    )


def driver_problem(text: str) -> str:
    """Return why the driver does not answer at all, "" if the text does not say that it does not."""
    if re.search(r"driver/library version mismatch", text, re.IGNORECASE):
        return "driver_library_mismatch"
    if re.search(r"couldn.t communicate with the NVIDIA driver|driver not loaded", text, re.IGNORECASE):
        return "driver_not_loaded"
    if re.search(r"no devices were found", text, re.IGNORECASE):
        return "no_devices"
    if re.search(r"Failed to initialize NVML", text, re.IGNORECASE):
        return "nvml_unknown_error"
    return ""
