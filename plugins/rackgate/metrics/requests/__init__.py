"""Metrics of requests: latency, rates, faults."""
