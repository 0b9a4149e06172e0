"""Verdicts: one check, the quarantine that follows from it, the whole run."""
