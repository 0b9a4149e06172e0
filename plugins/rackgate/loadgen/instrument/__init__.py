"""The load generator measures its own error."""
