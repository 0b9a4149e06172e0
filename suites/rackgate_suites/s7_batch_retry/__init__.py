"""Stage batch_retry."""
