"""Many files of a remote machine in one shell command."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence

from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason

_LIMIT_BYTES = 1 << 20


def read_files(patterns: Sequence[str], run_script: Callable[[str], Ran]) -> Mapping[str, Ran]:
    """Return the files that match shell patterns, by path; those that may not be read say so.

    `run_script` runs a script of `sh` there. A machine that does not answer gives its reason under every
    pattern.
    """
    mark = secrets.token_hex(8)
    script = (
        f'for f in {" ".join(_pattern(one) for one in patterns)}; do [ -f "$f" ] || continue; '
        f'if [ -r "$f" ]; then echo "{mark} $f"; head -c {_LIMIT_BYTES} "$f" 2>/dev/null; '
        f'else echo "{mark}! $f"; fi; echo; done; echo "{mark}end"'
    )
    ran = run_script(script)
    if f"{mark}end" not in ran.text:
        cut = Ran(reason=ran.reason or Reason.DIED, detail=ran.detail or "the node's answer was cut off")
        return dict.fromkeys(patterns, cut)
    return _files(ran.text, mark)


def _pattern(pattern: str) -> str:
    """Quote a shell pattern, all but its wildcards."""
    return "".join(part if part in "*?" else shlex.quote(part) for part in _parts(pattern))


def _parts(pattern: str) -> list[str]:
    parts = [""]
    for letter in pattern:
        if letter in "*?":
            parts += [letter, ""]
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _files(text: str, mark: str) -> dict[str, Ran]:
    found: dict[str, Ran] = {}
    for piece in text.split(mark)[1:]:
        head, _, body = piece.partition("\n")
        if head.startswith("! "):
            found[head[2:]] = Ran(reason=Reason.NO_PERMISSION, detail=f"{head[2:]} may not be read")
        elif head.startswith(" "):
            found[head[1:]] = Ran(text=body.removesuffix("\n"), status=0)
    return found
