"""Inspection of nodes, hosts, cards and engines before any load."""
