"""Metrics, launchers, racks and a way to ask what is wrong with a table."""

import pytest

from rackgate.config.acceptance_file import load_acceptance, merge_layers
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.metrics.metric import Metric
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import Card, Node
from rackgate.nouns.target import EngineSpec, Gateway, Member, Target

UNITS = {
    "ttft_ms": "ms",
    "error_rate": "ratio",
    "temperature_c": "°C",
    "detection_s": "s",
    "output_token_throughput": "tok/s",
}


def any_row(observation, slo, entity):
    """A metric that does not tell what a row may ask of it."""


TELLING_NOTHING = {name: Metric(name=name, unit=unit, function=any_row) for name, unit in UNITS.items()}


def shipped_metrics():
    registry = shipped_registry()
    return registry.metrics


@pytest.fixture
def rack():
    """Make a target of so many nodes with so many single-card engines each."""

    def rack(nodes=1, engines=1, *, gateway=True):
        names = [f"node{number}" for number in range(1, nodes + 1)]
        cards = [
            Card(name=f"{node}/gpu{index}", node=node, index=index)
            for node in names
            for index in range(engines)
        ]
        return Target(
            name="lab",
            model="m",
            grade="accelerator",
            nodes=tuple(
                Node(name=node, cards=tuple(card for card in cards if card.node == node)) for node in names
            ),
            engines=tuple(
                EngineSpec(
                    name=card.name.replace("/", "-"),
                    launcher="remote",
                    model="m",
                    members=(Member(node=card.node, cards=(card.name,)),),
                )
                for card in cards
            ),
            gateway=Gateway(url="http://gateway:1") if gateway else None,
        )

    return rack


@pytest.fixture
def acceptance(rack):
    """Lay parsed files over each other, for a rack of so many engines (None: a rack that is not known)."""

    def acceptance(*files, profile="smoke", engines=1, metrics=None, target=None):
        layers = [(f"file{number}.toml", data) for number, data in enumerate(files, start=1)]
        known = target or (rack(engines=engines) if engines is not None else None)
        return merge_layers(layers, profile, metrics=metrics or TELLING_NOTHING, target=known)

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
def wrong_row(wrong):
    """Return the problems of one row on the shipped metrics, with a load that decides anything."""

    def wrong_row(target=None, looks=(10_000,), **row):
        facts = {"id": "single_card.mine", "op": "<=", "bound": 1.0, "scope": "engine", "source": "contract"}
        load = {"prompt_tokens": 8, "output_tokens": 8, "looks": list(looks)}
        data = {"load": {"interactive": load, "calls": load}, "slo": [{**facts, **row}]}
        prefix = f"file1.toml: slo '{data['slo'][0]['id']}'."
        return [
            problem.removeprefix(prefix) for problem in wrong(data, metrics=shipped_metrics(), target=target)
        ]

    return wrong_row


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
def shipped(rack):
    """Return the shipped acceptance of a profile."""

    def shipped(profile="smoke", path=None, target=None):
        return load_acceptance(
            path, profile, metrics=shipped_metrics(), target=target or rack(nodes=2, engines=2)
        )

    return shipped


@pytest.fixture(scope="session")
def launchers():
    """What a target file may name as launchers."""

    def check_settings(settings):
        return [f"{name}: unknown key" for name in settings if name != "command"]

    return {"remote": check_settings, "process": check_settings}
