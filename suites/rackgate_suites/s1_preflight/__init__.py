"""Stage preflight."""
