"""A site's own program: JSON against the shipped schema (`rackgate probes --schema`)."""

from __future__ import annotations

from rackgate.config.probe_output import ProbeOutput, read_output
from rackgate.nouns.measurement import Reason
from rackgate.probes.json_text import one_object
from rackgate.probes.probe import Asked, BadOutput, Value


def values(text: str, asked: Asked) -> list[Value]:
    """Return what the program says of each entity; it must say itself that it is complete."""
    output = _read(text)
    listed = []
    for one in output.values:
        entity = _local(one.entity, asked)
        said = "; ".join(part for part in (one.detail, one.evidence) if part)
        listed.append(
            Value(
                name=one.name,
                entity=entity,
                value=one.value,
                unit=one.unit,
                count=one.count,
                reason=Reason(one.reason) if one.reason else None,
                detail=said,
            )
        )
    return listed


def _read(text: str) -> ProbeOutput:
    output, problems = read_output(one_object(text))
    if output is None:
        raise BadOutput("; ".join(problems)[:300])
    return output


def _local(entity: str, asked: Asked) -> str:
    """Return an entity as the node itself names it; names of other nodes stay as they are."""
    if entity == asked.node:
        return "node"
    return entity.removeprefix(f"{asked.node}/")
