"""AMD's agfhc: under NDA, its files are not public; one line of its output is, and only that counts."""

from __future__ import annotations

import re

from rackgate.probes.json_text import shown
from rackgate.probes.probe import Asked, BadOutput, Value

_CODE = re.compile(r"return code (AGFHC_\w+)", re.IGNORECASE)


def values(text: str, asked: Asked) -> list[Value]:
    """Return `not_passed` of the node: 0 for `return code AGFHC_SUCCESS`, 1 for any other code it tells."""
    del asked
    codes = _CODE.findall(text)
    if not codes:
        raise BadOutput(f"no line `return code AGFHC_...`: {shown(text[-400:])}")
    bad = [code for code in codes if code.upper() != "AGFHC_SUCCESS"]
    detail = ", ".join(dict.fromkeys(codes))
    return [Value(name="not_passed", entity="node", value=float(len(bad)), count=len(codes), detail=detail)]
