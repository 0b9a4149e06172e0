"""What to do next about a check that failed or could not be decided."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackgate_reports.evidence import RunEvidence
    from rackgate_reports.story import Trouble

__all__ = ["next_step", "repeat_command"]

_REASONS = {
    "absent": "Find out why the signal is not there: the card, its driver or the exporter.",
    "blank": "The source answered without a value. Restart the exporter or the driver's host engine.",
    "unsupported": "The hardware does not offer this. Declare it in the target, with the reason.",
    "no_permission": "Run as a user who may read this, or declare a narrower vantage in the target.",
    "tool_missing": "Install the tool named above on the node.",
    "timeout": "The source did not answer in time. See whether the node is overloaded or hung.",
    "unreachable": "Check the address in the target, the network, and that the service runs.",
    "too_few": "Offer more requests: raise the load's looks or duration in the acceptance file.",
    "stale": "The source repeats an old value. Restart the exporter and compare its clock.",
    "gated": "Repair what gated this check first.",
    "excluded": "The entity was left out on purpose. Run again without the exclusion.",
    "not_configured": "Add what is missing to the target or the acceptance file.",
    "instrument": "The load generator was the bottleneck. Use a quieter or a second load machine.",
    "died": "See the log of the process that died, under evidence/logs/.",
}


def next_step(run: RunEvidence, trouble: Trouble) -> tuple[str, str]:
    """Return what to do about a trouble, in words, and the command that tests only it again."""
    reasons = list(dict.fromkeys(row.reason for row in trouble.rows if row.reason))
    words = " ".join(_REASONS[reason] for reason in reasons if reason in _REASONS)
    if not words:
        words = "Repair the cause, then test again what was repaired."
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
