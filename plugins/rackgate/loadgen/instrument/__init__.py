"""Measures the load generator's own error."""
