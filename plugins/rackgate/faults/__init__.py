"""Faults that are injected on purpose.

`injection` is the protocol that every fault goes through, `catalogue` lists the shipped faults, and each
family of faults has a module: `engine_faults`.
"""
