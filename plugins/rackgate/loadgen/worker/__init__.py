"""The process that offers a load."""
