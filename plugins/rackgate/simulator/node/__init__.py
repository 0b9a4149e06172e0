"""The process of a simulated node: its cards, exporter and management controller."""
