"""AMD's agfhc: its file formats are under NDA; only one line of its output is public, and only it counts."""

from __future__ import annotations

import re

from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import shown

_CODE = re.compile(r"return code (AGFHC_\w+)", re.IGNORECASE)


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `not_passed` of the node: the number of return codes other than `AGFHC_SUCCESS`."""
    del node
    codes = _CODE.findall(text)
    if not codes:
        raise BadOutput(f"no line `return code AGFHC_...`: {shown(text[-400:])}")
    bad = [code for code in codes if code.upper() != "AGFHC_SUCCESS"]
    detail = ", ".join(dict.fromkeys(codes))
    return [Value(name="not_passed", entity="node", value=float(len(bad)), count=len(codes), detail=detail)]
