"""Stage fault_injection."""
