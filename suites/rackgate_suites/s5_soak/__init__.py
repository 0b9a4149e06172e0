"""Stage soak."""
