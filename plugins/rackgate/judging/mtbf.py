"""The MTBF bound that a soak without a failure proves."""

from __future__ import annotations

from rackgate.judging.ledger import Ledger
from rackgate.judging.message import number
from rackgate.nouns.verdict import Verdict


def proven_mtbf(ledger: Ledger, soaked_s: float) -> str:
    """Return the mean time between failures that a soak of `soaked_s` seconds proves, in a sentence.

    Empty if not every check of the soak passed, or if no card took part.
    """
    from rackgate.statistics.proportions import mtbf_lower_bound_h

    soak = [check_id for check_id, check in ledger.planned.items() if check.slo.stage == "soak"]
    passed = [
        ledger.verdicts.get(check_id) is Verdict.PASS for check_id in soak if check_id not in ledger.skipped
    ]
    cards = ledger.tested() & {card.name for card in ledger.target.cards}
    card_hours = len(cards - frozenset(ledger.quarantined("soak"))) * soaked_s / 3600
    proven = mtbf_lower_bound_h(card_hours) if passed and all(passed) else None
    if proven is None:
        return ""
    return (
        f"soak: {number(card_hours, 'card-hours')} without a failure prove a mean time between failures of "
        f"at least {number(proven, 'card-hours')} (95 %), no more"
    )
