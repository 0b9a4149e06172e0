import pytest


@pytest.fixture
def metrics():
    """The shipped metrics by name."""
    from rackgate.metrics.shipped import register_metrics
    from rackgate.registry import Registry

    registry = Registry()
    register_metrics(registry.add_metric)
    return registry.metrics
