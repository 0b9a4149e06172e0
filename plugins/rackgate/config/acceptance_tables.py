"""Tables of an acceptance file: keys, types, units and ranges, and the load or row that each one makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from rackgate.config.fields import Positive, ProtocolName, Table
from rackgate.loadgen.requests.trace import trace_of
from rackgate.nouns.load import Arrival, Limits, Load, Phase, Shape, Spread
from rackgate.nouns.measurement import Layer
from rackgate.nouns.slo import STATISTICS, Op, Scope, Severity, Slo, Vantage

PROFILES = ("smoke", "ci", "golive", "signoff", "strict")

_EnumName = Field(strict=False)
"""TOML has no enumerations: a string names the member."""


class LimitsTable(Table):
    """`[load.NAME.limits]`, seconds."""

    connect_s: Positive = 5.0
    first_token_s: Positive = 30.0
    stall_s: Positive = 30.0
    total_s: Positive = 300.0


class SpreadTable(Table):
    """`[load.NAME.prompt_spread]` or `output_spread`, tokens."""

    shape: Annotated[Shape, _EnumName]
    deviation: float = Field(ge=0, allow_inf_nan=False)
    least: int = Field(default=1, ge=1)
    most: int | None = Field(default=None, ge=1)


class PhaseTable(Table):
    """`[[load.NAME.phases]]`."""

    duration_s: Positive
    rate_per_s: float = Field(ge=0, allow_inf_nan=False)
    to_rate_per_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class LoadTable(Table):
    """`[load.NAME]`."""

    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    arrival: Annotated[Arrival, _EnumName] = Arrival.CLOSED
    concurrency: int = Field(default=1, ge=1)
    rate_per_s: Positive | None = None
    duration_s: Positive | None = None
    looks: list[Annotated[int, Field(ge=1)]] = Field(default=[], max_length=3)
    warmup_requests: int = Field(default=3, ge=0)
    workload: str = Field(
        default="assistant", pattern="^(assistant|batch|long_context|audio_video|embedding)$"
    )
    seed: int = Field(default=1, ge=0)
    limits: LimitsTable = LimitsTable()
    ttft_bound_ms: Positive | None = None
    tpot_bound_ms: Positive | None = None
    e2e_bound_ms: Positive | None = None
    burstiness: Positive = 1.0
    phases: list[PhaseTable] = []
    arrivals_s: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = []
    ramp_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    prompt_spread: SpreadTable | None = None
    output_spread: SpreadTable | None = None
    shared_prefix_tokens: int = Field(default=0, ge=0)
    shared_prefixes: int = Field(default=1, ge=1)
    turns: int = Field(default=1, ge=1)
    think_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    trace: str | None = None
    trace_format: str = Field(default="auto", pattern="^(auto|mooncake|azure|burstgpt|sharegpt)$")
    trace_speed: Positive = 1.0
    repeats: int = Field(default=1, ge=1)
    protocol: ProtocolName | None = None
    context_tokens: int | None = Field(default=None, ge=1)
    expect: str | None = Field(default=None, min_length=1)
    tokenizer: str | None = None
    workers: int | None = Field(default=None, ge=1)
    reason: str = ""

    def to_load(self, name: str) -> Load:
        """Return the load with the number of requests of its trace. Raises `ValueError` for a bad trace."""
        converted = ("limits", "looks", "reason", "phases", "arrivals_s", "prompt_spread", "output_spread")
        fields = {key: getattr(self, key) for key in LoadTable.model_fields if key not in converted}
        for key in ("prompt_spread", "output_spread"):
            table = getattr(self, key)
            fields[key] = None if table is None else Spread(**table.model_dump())
        load = Load(
            name=name,
            looks=tuple(self.looks),
            limits=Limits(**self.limits.model_dump()),
            phases=tuple(Phase(**phase.model_dump()) for phase in self.phases),
            arrivals_s=tuple(self.arrivals_s),
            **fields,
        )
        trace = trace_of(load)
        return load if trace is None else replace(load, trace_requests=trace.in_time(load))


class SloTable(Table):
    """`[[slo]]`."""

    id: str = Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
    metric: str
    statistic: str = Field(default="value", pattern=f"^({'|'.join(STATISTICS)})$")
    op: Annotated[Op, _EnumName]
    bound: float = Field(allow_inf_nan=False)
    unit: str
    scope: Annotated[Scope, _EnumName]
    source: str = Field(min_length=1)
    load: str | None = None
    window: str = Field(default="load", pattern="^(load|fault|recovery)$")
    severity: Annotated[Severity, _EnumName] = Severity.BLOCKER
    min_count: int = Field(default=1, ge=1)
    vantage: Vantage = "endpoint"
    profiles: list[Annotated[str, Field(pattern=f"^({'|'.join(PROFILES)})$")]] = []
    applies_to: dict[str, list[str]] = {}
    clauses: list[str] = []
    hint: str = ""
    layer: str = Field(default="", pattern=f"^({'|'.join(Layer)})?$")
    reason: str = ""
    disabled: bool = False

    def to_slo(self, origin: str) -> Slo:
        """Return the row; `origin` is the last file that changed it."""
        fields = {key: getattr(self, key) for key in SloTable.model_fields if key != "disabled"}
        fields.update({key: tuple(fields[key]) for key in ("profiles", "clauses")})
        fields["applies_to"] = {key: tuple(values) for key, values in self.applies_to.items()}
        return Slo(stage=self.id.split(".")[0], origin=origin, **fields)


class AcceptanceTables(Table):
    """A whole file. Its rows, loads and probes are validated after all files are merged."""

    load: dict[str, dict[str, Any]] = {}
    probe: dict[str, dict[str, Any]] = {}
    slo: list[dict[str, Any]] = []
