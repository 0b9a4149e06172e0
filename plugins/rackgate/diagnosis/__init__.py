"""Causes of an unmet check: known failures, conditions of the load, and events in the same seconds."""
