"""Load from other machines through Ray."""
