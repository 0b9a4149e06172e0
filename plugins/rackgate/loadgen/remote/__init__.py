"""Load from other machines."""
