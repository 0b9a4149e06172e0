"""Stage two_card."""
