"""What each stage measures."""
