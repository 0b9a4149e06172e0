"""The staged acceptance suites: tests only."""
