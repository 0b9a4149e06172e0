"""Counters that engines keep themselves, read around a load."""
