"""What tests of how containers start ask of them."""

import pytest

from rackgate.nouns.engine import LaunchFailed

KEY = "hub-token-value-0123456789"


def failure(launch, spec):
    with pytest.raises(LaunchFailed) as failed, launch(spec):
        pytest.fail("it came up")
    return failed.value


def environment_of(client, engine):
    """Return the environment of the container's main process, as the engine sees it."""
    done = client.containers.get(engine.handle.ident).exec_run(["cat", "/proc/1/environ"])
    return dict(line.split("=", 1) for line in done.output.decode().split("\0") if "=" in line)
