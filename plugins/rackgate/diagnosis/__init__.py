"""What a text or a moment means: known signatures with the first next step, and what else happened then."""

from __future__ import annotations

from rackgate.diagnosis.chain import Chain, Link, chain_of
from rackgate.diagnosis.happenings import Happening, happenings_of
from rackgate.diagnosis.imbalance import imbalance_of
from rackgate.diagnosis.signatures import Diagnosis, Signature, diagnose, signatures
from rackgate.diagnosis.together import SeenTogether, seen_at_the_same_time

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
