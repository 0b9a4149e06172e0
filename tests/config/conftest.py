"""Metrics, launchers and a way to ask what is wrong with a table."""

import pytest

from rackgate.config.acceptance_file import lay_over, load_acceptance
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target

UNITS = {
    "ttft_ms": "ms",
    "error_rate": "ratio",
    "temperature_c": "°C",
    "detection_s": "s",
    "output_token_throughput": "tok/s",
}


@pytest.fixture
def acceptance():
    """Lay parsed files over each other."""

    def acceptance(*files, profile="smoke", engines=1):
        layers = [(f"file{number}.toml", data) for number, data in enumerate(files, start=1)]
        return lay_over(layers, profile, units=UNITS, engines=engines)

    return acceptance


@pytest.fixture
def wrong(acceptance):
    """Return the problems of acceptance files, none if they are good."""

    def wrong(*files, **facts):
        try:
            acceptance(*files, **facts)
        except ConfigError as error:
            return list(error.problems)
        return []

    return wrong


@pytest.fixture
def wrong_target(launchers):
    """Return the problems of a target file."""

    def wrong_target(data):
        try:
            parse_target(data, "rack.toml", launchers)
        except ConfigError as error:
            return list(error.problems)
        return []

    return wrong_target


@pytest.fixture
def shipped():
    """Return the shipped acceptance of a profile."""

    def shipped(profile="smoke", path=None, engines=4):
        from rackgate.metrics.shipped import register_metrics

        units = {}
        register_metrics(lambda name, unit, _function: units.update({name: unit}))
        return load_acceptance(path, profile, units=units, engines=engines)

    return shipped


@pytest.fixture(scope="session")
def launchers():
    """What a target file may name as launchers."""

    def check_settings(settings):
        return [f"{name}: unknown key" for name in settings if name != "command"]

    return {"remote": check_settings, "process": check_settings}
