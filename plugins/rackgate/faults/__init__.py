"""What can be broken on purpose."""
