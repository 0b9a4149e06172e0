"""A run in progress: its folder, its records, its verdicts."""
