"""Stage single_card."""
