"""A site's own program: JSON against the shipped schema (`rackgate probes --schema`)."""

from __future__ import annotations

from rackgate.config.probe_output import ProbeOutput, read_output
from rackgate.nouns.measurement import Reason
from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import one_object


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return the values of each entity; the output itself must say that it is complete."""
    output = _read(text)
    listed = []
    for value in output.values:
        detail = "; ".join(part for part in (value.detail, value.evidence) if part)
        listed.append(
            Value(
                name=value.name,
                entity=_local(value.entity, node),
                value=value.value,
                unit=value.unit,
                count=value.count,
                reason=Reason(value.reason) if value.reason else None,
                detail=detail,
            )
        )
    return listed


def _read(text: str) -> ProbeOutput:
    output, problems = read_output(one_object(text))
    if output is None:
        raise BadOutput("; ".join(problems)[:300])
    return output


def _local(entity: str, node: ProbedNode) -> str:
    """Return an entity as its own node names it; entities of other nodes keep their names."""
    if entity == node.name:
        return "node"
    return entity.removeprefix(f"{node.name}/")
