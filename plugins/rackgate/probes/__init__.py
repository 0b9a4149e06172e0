"""Probes: programs of others that run on nodes, their output read strictly, their values measured."""
