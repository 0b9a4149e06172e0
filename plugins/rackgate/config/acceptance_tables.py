"""The tables of an acceptance file as they are written: keys, types, units, ranges."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rackgate.load import Arrival, Limits, Load
from rackgate.slo import Op, Scope, Severity, Slo

__all__ = ["PROFILES", "STATISTICS", "AcceptanceTables", "LimitsTable", "LoadTable", "SloTable"]

PROFILES = ("smoke", "ci", "golive", "signoff", "strict")
STATISTICS = ("value", "mean", "max", "p50", "p90", "p95", "p99", "p999")

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Word = Field(strict=False)
"""TOML has no enumerations: a string names the member."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LimitsTable(_Table):
    """`[load.NAME.limits]`, seconds."""

    connect_s: _Positive = 5.0
    first_token_s: _Positive = 30.0
    stall_s: _Positive = 30.0
    total_s: _Positive = 300.0


class LoadTable(_Table):
    """`[load.NAME]`."""

    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    arrival: Annotated[Arrival, _Word] = Arrival.CLOSED
    concurrency: int = Field(default=1, ge=1)
    rate_per_s: _Positive | None = None
    duration_s: _Positive | None = None
    looks: list[Annotated[int, Field(ge=1)]] = Field(default=[], max_length=3)
    warmup_requests: int = Field(default=3, ge=0)
    workload: str = Field(
        default="assistant", pattern="^(assistant|batch|long_context|audio_video|embedding)$"
    )
    seed: int = Field(default=1, ge=0)
    limits: LimitsTable = LimitsTable()
    ttft_bound_ms: _Positive | None = None
    tpot_bound_ms: _Positive | None = None
    reason: str = ""

    def noun(self, name: str) -> Load:
        """Return the load."""
        fields = {
            key: getattr(self, key)
            for key in LoadTable.model_fields
            if key not in ("limits", "looks", "reason")
        }
        return Load(name=name, looks=tuple(self.looks), limits=Limits(**self.limits.model_dump()), **fields)


class SloTable(_Table):
    """`[[slo]]`."""

    id: str = Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
    metric: str
    statistic: str = Field(default="value", pattern=f"^({'|'.join(STATISTICS)})$")
    op: Annotated[Op, _Word]
    bound: float = Field(allow_inf_nan=False)
    unit: str
    scope: Annotated[Scope, _Word]
    source: str = Field(min_length=1)
    load: str | None = None
    window: str = Field(default="load", pattern="^(load|fault|recovery)$")
    severity: Annotated[Severity, _Word] = Severity.BLOCKER
    min_count: int = Field(default=1, ge=1)
    vantage: str = Field(default="endpoint", pattern="^(endpoint|tenant|operator)$")
    profiles: list[Annotated[str, Field(pattern=f"^({'|'.join(PROFILES)})$")]] = []
    applies_to: dict[str, list[str]] = {}
    clauses: list[str] = []
    hint: str = ""
    reason: str = ""
    disabled: bool = False

    def noun(self, origin: str) -> Slo:
        """Return the row; `origin` names the file that wrote it last."""
        fields = {key: getattr(self, key) for key in SloTable.model_fields if key != "disabled"}
        fields.update({key: tuple(fields[key]) for key in ("profiles", "clauses")})
        fields["applies_to"] = {key: tuple(values) for key, values in self.applies_to.items()}
        return Slo(stage=self.id.split(".")[0], origin=origin, **fields)


class AcceptanceTables(_Table):
    """A whole file; rows and loads are validated once all files are laid over each other."""

    load: dict[str, dict[str, Any]] = {}
    slo: list[dict[str, Any]] = []
