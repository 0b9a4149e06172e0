"""Metrics: what is computed from an observation, one function each, registered by name and unit."""
