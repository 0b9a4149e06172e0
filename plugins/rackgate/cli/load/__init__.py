"""`rackgate load`."""
