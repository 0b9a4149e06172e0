import pytest


@pytest.fixture
def metrics():
    """The shipped metrics by name."""
    from rackgate.metrics.registry import Registry
    from rackgate.metrics.shipped import register_metrics

    registry = Registry()
    register_metrics(registry.add_metric)
    return registry.metrics
