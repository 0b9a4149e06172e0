"""A simulated node: its cards, exporter and controller."""
