"""Stage cross_node."""
