"""Stage selfcheck."""
