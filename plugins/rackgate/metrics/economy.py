"""Energy and cost of the loads of a run, added up by class of work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackgate.nouns.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One load's share of its class: a measurement per unit of work, and the number of units."""

    load: str
    measured: Measurement
    units: float


class Economies:
    """Energy and cost of the loads of a run, by class of work and metric."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], list[_Share]] = {}

    def add(self, workload: str, load: str, measured: Measurement, units: float) -> None:
        """Add a load's measurement and its units of work."""
        share = _Share(load=load, measured=measured, units=units)
        self._shares.setdefault((workload, measured.metric), []).append(share)

    def classes(self) -> list[tuple[str, Measurement]]:
        """Return (class, measurement) over all its loads: the sum of what was taken / the work done."""
        found = []
        for (workload, _), shares in self._shares.items():
            units = sum(share.units for share in shares)
            taken = sum((share.measured.value or 0.0) * share.units for share in shares)
            names = ", ".join(dict.fromkeys(share.load for share in shares))
            sources = ", ".join(dict.fromkeys(share.measured.source for share in shares))
            measured = replace(
                shares[0].measured,
                value=taken / units,
                count=sum(share.measured.count for share in shares),
                detail=f"class {workload}: {names}",
                source=sources,
            )
            found.append((workload, measured))
        return found
