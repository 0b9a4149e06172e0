"""Judges a finished run again from its evidence, with no rack."""
