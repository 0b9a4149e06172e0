"""What to do next about a check that failed or could not be decided."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rackgate.nouns.measurement import Reason
from rackgate_reports.digest.chain import first_step

if TYPE_CHECKING:
    from rackgate_reports.digest.overview import Trouble
    from rackgate_reports.evidence import RunEvidence


def next_step(run: RunEvidence, trouble: Trouble) -> tuple[tuple[str, ...], str]:
    """Return what to do about a trouble, in sentences, and the command that tests only it again."""
    steps = [step for row in trouble.rows[:1] if (step := first_step(row))]
    hints = [row.hint for row in trouble.rows[:1] if row.hint]
    cures = [Reason(row.reason).cure for row in trouble.rows if row.reason in set(Reason)]
    again = [] if cures else ["Repair the cause, then test again what was repaired."]
    words = tuple(dict.fromkeys([*steps, *hints, *cures, *again]))
    entities = [row.entity for row in trouble.rows if row.entity not in ("rack", "gateway", "")]
    parts = _command(run)
    parts.append(f"--rack-stage={trouble.stage}")
    if 0 < len(entities) <= 4 and all("+" not in entity for entity in entities):
        parts.append(f"--rack-only={','.join(entities)}")
    return words, shlex.join(parts)


def repeat_command(run: RunEvidence) -> str:
    """Return the command that runs the same again."""
    return shlex.join(_command(run))


def _command(run: RunEvidence) -> list[str]:
    """Return the words; `=` joins option and file: pytest takes a path that stands alone for its own."""
    target = run.run.get("target")
    target = target if isinstance(target, dict) else {}
    source = str(target.get("source") or "")
    nodes = [node for node in target.get("nodes") or () if isinstance(node, dict)]
    if run.run.get("scenario"):
        source = f"sim:{len(nodes)}x{len(nodes[0].get('cards') or ())}" if nodes else "sim"
    acceptance = run.run.get("acceptance")
    files = (acceptance.get("files") if isinstance(acceptance, dict) else None) or ()
    own = [str(file) for file in files if not str(file).startswith("shipped ")]
    options = {
        "--rack-target": source,
        "--rack-model": target.get("model") if source.startswith(("http://", "https://")) else None,
        "--rack-slo": own[-1] if own else None,
        "--rack-profile": run.run.get("profile"),
        "--rack-scenario": run.run.get("scenario"),
    }
    given = [f"{option}={value}" for option, value in options.items() if value]
    return ["pytest", "-m", "rack_acceptance", *given]
