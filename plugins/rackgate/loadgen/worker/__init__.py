"""The worker process, which generates the load."""
