"""The simulated gateway."""
