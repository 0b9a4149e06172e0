"""One agreed bound on one metric, and the identity of a check: `SLO id @ entity`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

STAGES = (
    "selfcheck",
    "preflight",
    "single_card",
    "two_card",
    "cross_node",
    "soak",
    "fault_injection",
    "batch_retry",
)
"""The stages, in their order."""

THROUGH_GATEWAY = ("cross_node", "soak", "fault_injection", "batch_retry")
"""Stages whose work comes in where users do: through the gateway, where there is one."""

Vantage = Literal["endpoint", "tenant", "operator"]
"""What a tester can see, the least first."""

VANTAGES: tuple[str, ...] = get_args(Vantage)

ONE_VALUE = ("value",)
"""Statistics of a metric that is one number over the whole load."""

OF_SAMPLES = ("p50", "p90", "p95", "p99", "p999", "max", "mean")
"""Statistics of a metric that every request has; `mean` never decides alone."""

STATISTICS = (*ONE_VALUE, *OF_SAMPLES)
"""Every statistic that a row can ask for."""


class Op(StrEnum):
    """How the value must stand to the bound."""

    AT_MOST = "<="
    AT_LEAST = ">="
    EQUAL = "=="

    def holds(self, value: float, bound: float) -> bool:
        """Return whether `value` satisfies the bound."""
        if self is Op.AT_MOST:
            return value <= bound
        if self is Op.AT_LEAST:
            return value >= bound
        return value == bound


class Scope(StrEnum):
    """What one row is judged on, each entity by itself."""

    RACK = "rack"
    NODE = "node"
    CARD = "card"
    ENGINE = "engine"
    POOL = "pool"
    PAIR = "pair"


class Severity(StrEnum):
    """A blocker decides; a `warn` row that does not hold is WARN."""

    BLOCKER = "blocker"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """A row of the acceptance file.

    `statistic` is one of `STATISTICS`; `load` is the name of the load whose samples are judged, or None for
    probes; `window` is the part of it that counts: all of it (`load`), the time of the fault (`fault`) or
    from the fault to the load's end (`recovery`). Below `min_count` samples nothing is decided. `vantage` is
    the least a tester must be able to see. The row is asked in `profiles`, in all if there are none.
    `applies_to` narrows it to entities, by `engine`, `grade`, `model`, `pool`, `sku`, `tensor_parallel` and
    `vendor`. `source` says where the bound comes from, `clauses` which clauses of a contract it stands for,
    `reason` why it overrides another, `origin` which file wrote it last. `hint` is the next step where it is
    not met. `layer` is where its failure lives if that is another layer than its metric's.
    """

    id: str
    stage: str
    metric: str
    statistic: str
    op: Op
    bound: float
    unit: str
    scope: Scope
    source: str
    load: str | None = None
    window: str = "load"
    severity: Severity = Severity.BLOCKER
    min_count: int = 1
    vantage: str = "endpoint"
    profiles: tuple[str, ...] = ()
    applies_to: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clauses: tuple[str, ...] = ()
    hint: str = ""
    layer: str = ""
    reason: str = ""
    origin: str = ""

    @classmethod
    def unjudged(cls, stage: str, load: str, metric: str, statistic: str, unit: str) -> Slo:
        """Return a row that only asks for the value of a metric over the whole rack."""
        return cls(
            id=f"{stage}.{metric}", stage=stage, metric=metric, statistic=statistic, op=Op.AT_MOST, bound=0.0,
            unit=unit, scope=Scope.RACK, source="", load=load,
        )  # fmt: skip

    @property
    def quantile(self) -> float | None:
        """0.99 for `p99`, 0.999 for `p999`; None where the statistic is no percentile."""
        statistic = self.statistic
        return float(f"0.{statistic[1:]}") if statistic[:1] == "p" and statistic[1:].isdigit() else None

    @property
    def limit(self) -> str:
        """The bound as people read it, such as `<= 500 ms`."""
        return f"{self.op} {self.bound:g} {self.unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row for one entity: one test item, one verdict.

    `declared_absent` holds the target's own declaration when there is nothing to check, else it is
    empty; `not_assessed` says why the tester's vantage cannot see it; `undecidable` says why no
    applicable row exists.
    """

    slo: Slo
    entity: str
    declared_absent: str = ""
    not_assessed: str = ""
    undecidable: str = ""

    @property
    def id(self) -> str:
        """`SLO id @ entity`, unique in a run."""
        return f"{self.slo.id} @ {self.entity}"
