"""Engines as local processes."""
