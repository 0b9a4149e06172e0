"""Staged acceptance of a rack of accelerators for LLM inference, with evidence."""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Look the version up where it is asked for: importlib.metadata costs more than all else here."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pytest-rackgate")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
