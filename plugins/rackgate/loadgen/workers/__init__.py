"""The worker processes of a load as the caller sees them: their number, links, and joined results."""
