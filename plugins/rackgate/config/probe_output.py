"""Output of a site's own probe: one JSON object. The shipped JSON Schema is made from these tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from rackgate.config.fields import Table
from rackgate.config.problems import problems_of
from rackgate.nouns.measurement import Reason

_REASONS = tuple(str(reason) for reason in Reason if reason not in (Reason.GATED, Reason.EXCLUDED))


class ProbeValue(Table):
    """One value of one entity, or the reason why the probe has none."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="a name declared in [probe.NAME] values")
    entity: str = Field(
        min_length=1,
        description="`node`, `gpuINDEX`, `rack`, or a full name such as `node1/gpu0`",
    )
    value: Annotated[float, Field(allow_inf_nan=False)] | None = Field(description="null needs a reason")
    unit: str = Field(description="must be the declared one")
    count: int = Field(default=1, ge=1, description="number of samples behind the value")
    reason: Annotated[str, Field(pattern=f"^({'|'.join(_REASONS)})$")] | None = None
    detail: str = Field(default="", max_length=2000, description="what was seen, for people")
    evidence: str = Field(default="", max_length=2000, description="what shows that it was measured")

    @model_validator(mode="after")
    def _value_or_reason(self) -> ProbeValue:
        if (self.value is None) == (self.reason is None):
            raise ValueError("exactly one of value and reason is needed")
        return self


class ProbeOutput(Table):
    """The whole output. `complete` says that the probe came to its end: without it nothing counts."""

    version: Literal[1]
    complete: Literal[True]
    values: list[ProbeValue] = Field(min_length=1)


def read_output(found: dict[str, Any]) -> tuple[ProbeOutput | None, list[str]]:
    """Return the parsed output, or None and all its problems."""
    try:
        output = ProbeOutput.model_validate(found)
    except ValidationError as error:
        return None, problems_of(error, ProbeOutput, "its output")
    named = [(value.name, value.entity) for value in output.values]
    twice = sorted({f"{name} of {entity}" for name, entity in named if named.count((name, entity)) > 1})
    return (None, [f"its output: {', '.join(twice)} stands twice"]) if twice else (output, [])


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output (2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ProbeOutput.model_json_schema(),
    }
