"""Telemetry: signals of cards, hosts, chassis, kernels and engines on the requests' time axis."""
