"""What dead runs left behind."""
