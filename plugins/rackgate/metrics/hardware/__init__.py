"""Metrics of hardware signals under load."""
