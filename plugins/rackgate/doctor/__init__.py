"""Readiness forecast before a run: which checks will run, which will be UNKNOWN, why, and the cure."""
