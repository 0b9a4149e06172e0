"""What a text or a moment means: known signatures with the first next step, and what else happened then."""

from __future__ import annotations

from rackgate.diagnosis.chain import Chain, Link, chain_of
from rackgate.diagnosis.co_occurring_events import Happening, happenings_of
from rackgate.diagnosis.correlate import SeenTogether, seen_at_the_same_time
from rackgate.diagnosis.imbalance import imbalance_of
from rackgate.diagnosis.lookup import diagnose
from rackgate.known_failures.signatures import Diagnosis, Signature, signatures

__all__ = [
    "Chain",
    "Diagnosis",
    "Happening",
    "Link",
    "SeenTogether",
    "Signature",
    "chain_of",
    "diagnose",
    "happenings_of",
    "imbalance_of",
    "seen_at_the_same_time",
    "signatures",
]
