"""Card source: `nvidia-smi` of a node without an exporter, locally or over SSH."""

from __future__ import annotations

import time

from rackgate.hosts.pci import canonical_pci
from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.hosts.tools.nvidia_smi import SmiRow, driver_problem, lost_cards, parse_query
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.reading import REQUIRED, Reading, missing_readings

COLUMNS = {
    "temperature_c": "temperature.gpu",
    "memory_temperature_c": "temperature.memory",
    "power_w": "power.draw",
    "power_limit_w": "enforced.power.limit",
    "sm_clock_mhz": "clocks.current.sm",
    "memory_clock_mhz": "clocks.current.memory",
    "utilisation_pct": "utilization.gpu",
    "memory_used_mib": "memory.used",
    "memory_total_mib": "memory.total",
    "fan_pct": "fan.speed",
    "performance_state": "pstate",
    "pcie_generation": "pcie.link.gen.current",
    "pcie_generation_max": "pcie.link.gen.max",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "ecc_volatile_correctable": "ecc.errors.corrected.volatile.total",
    "ecc_volatile_uncorrectable": "ecc.errors.uncorrected.volatile.total",
    "ecc_aggregate_correctable": "ecc.errors.corrected.aggregate.total",
    "ecc_aggregate_uncorrectable": "ecc.errors.uncorrected.aggregate.total",
}
"""Our field -> the column of `nvidia-smi --query-gpu`."""

_REASONS = "clocks_throttle_reasons.active"
_IDENTITY = ("index", "name", "uuid", "pci.bus_id", "serial", "mig.mode.current", _REASONS)


class SmiSource:
    """Readings of a node's cards; one process for each look, so at most every `every_s`."""

    def __init__(self, node: Node, runner: Runner, *, every_s: float = 2.0, deadline_s: float = 10.0) -> None:
        self.name = f"nvidia-smi {node.name}"
        self._node = node
        self._runner = runner
        self._every_s = every_s
        self._deadline_s = deadline_s
        self._asked = -1e9
        self._rows: tuple[SmiRow, ...] = ()
        self._columns = (*_IDENTITY, *COLUMNS.values())
        query = f"--query-gpu={','.join(self._columns)}"
        self._command = Command(argv=("nvidia-smi", query, "--format=csv,noheader,nounits"))

    def poll(self) -> list[Reading]:
        """Return every column of each declared card; nothing if it is not time yet."""
        if time.monotonic() - self._asked < self._every_s:
            return []
        self._asked = time.monotonic()
        before_ns = time.perf_counter_ns()
        ran = self._runner.run(self._command, self._deadline_s)
        t_ns = (before_ns + time.perf_counter_ns()) // 2
        said = ran.text + ran.error
        problem = driver_problem(said)
        if problem:
            return self.nothing(Reason.NOT_CONFIGURED, f"{problem}: {said.strip()[:200]}")
        if ran.reason is not None or not ran.text.strip():
            detail = ran.detail or "nvidia-smi said nothing"
            if ran.reason is Reason.TIMEOUT:
                detail = f"driver unresponsive: {detail}"
            return self.nothing(ran.reason or Reason.ABSENT, detail)
        return self._readings(ran, t_ns)

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the required fields of each card without a value."""
        return missing_readings(self._node, time.perf_counter_ns(), reason, detail)

    def listed(self) -> tuple[ListedCard, ...] | None:
        """Return every card of the latest table; None if there was none."""
        return (
            tuple(
                ListedCard(
                    index=int(row.number("index") or 0),
                    name=row.cells["name"].text,
                    uuid=row.cells["uuid"].text,
                    pci=canonical_pci(row.cells["pci.bus_id"].text),
                    serial=row.cells["serial"].text if row.cells["serial"].supported else None,
                )
                for row in self._rows
            )
            or None
        )

    def close(self) -> None:
        """Release the node."""
        self._runner.close()

    def _readings(self, ran: Ran, t_ns: int) -> list[Reading]:
        rows = self._rows = parse_query(ran.text, self._columns)
        lost = ", ".join(fault.raw for fault in lost_cards(ran.text + ran.error))
        readings: list[Reading] = []
        for card in self._node.cards:
            row = next((row for row in rows if _is(row, card)), None)
            if row is None:
                detail = "nvidia-smi lists no such card" + (f"; it has lost {lost}" if lost else "")
                readings += [
                    Reading(t_ns, self._node.name, card.name, field, None, Reason.ABSENT, detail)
                    for field in REQUIRED
                ]
            else:
                readings += self._card(row, card, t_ns)
        return readings

    def _card(self, row: SmiRow, card: Card, t_ns: int) -> list[Reading]:
        node, readings = self._node.name, []
        for field, column in COLUMNS.items():
            cell = row.cells[column]
            if cell.number is not None:
                readings.append(Reading(t_ns, node, card.name, field, cell.number))
                continue
            reason = Reason.DIED if cell.fault else Reason.UNSUPPORTED
            readings.append(
                Reading(t_ns, node, card.name, field, None, reason, f"nvidia-smi says {cell.text}")
            )
        mask = _mask(row.cells[_REASONS].text)
        why = None if mask is not None else Reason.UNSUPPORTED
        readings.append(Reading(t_ns, node, card.name, "clock_event_reasons", mask, why))
        if row.mig is not None:
            readings.append(Reading(t_ns, node, card.name, "mig_enabled", float(row.mig)))
        return readings


def _is(row: SmiRow, card: Card) -> bool:
    if card.uuid:
        return row.cells["uuid"].text == card.uuid
    return row.number("index") == card.index


def _mask(text: str) -> float | None:
    try:
        return float(int(text, 16))
    except ValueError:
        return None
