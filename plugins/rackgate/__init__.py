"""Staged acceptance of a rack of accelerators for LLM inference, with evidence."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pytest-rackgate")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
