"""Kernel log: sources, parsing, XIDs and events."""
