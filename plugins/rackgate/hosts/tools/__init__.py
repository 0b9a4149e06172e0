"""Readers of the output of host tools."""
