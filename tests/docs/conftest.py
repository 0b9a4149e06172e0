import pytest


@pytest.fixture
def metrics():
    """The shipped metrics by name."""
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    return registry.metrics
