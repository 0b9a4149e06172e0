"""Known failures with their layer, meaning and next steps."""
