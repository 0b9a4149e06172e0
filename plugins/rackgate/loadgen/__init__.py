"""The load generator: runs loads in worker processes and measures its own error."""
