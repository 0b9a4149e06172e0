"""Before a run of hours: which checks will run, which will be UNKNOWN and why, and what would cure it."""
