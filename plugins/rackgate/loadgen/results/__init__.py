"""Samples as columns, and what a load amounts to."""
