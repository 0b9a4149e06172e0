"""The simulated gateway process."""
