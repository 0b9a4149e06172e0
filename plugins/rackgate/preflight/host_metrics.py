"""The metrics that preflight measures directly on hosts, cards and chassis: the table `metrics.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rackgate.nouns.measurement import Layer, Measurement, Reason, missing


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMetric:
    """A directly measured metric; `group` is the inspection that measures it.

    `inputs` are its inputs in the words of `rackgate.metrics.inputs`. With a `vendor` only that vendor's
    cards are asked. `layer` is the layer of its failure if its inputs do not say it.
    """

    name: str
    group: str
    unit: str
    title: str
    definition: str
    inputs: tuple[str, ...]
    vendor: str = ""
    layer: Layer | None = None


@cache
def host_metrics() -> dict[str, HostMetric]:
    """Return the metrics by name, in the order of the file."""
    text = (files(__package__) / "metrics.toml").read_text("utf-8")
    return {
        name: HostMetric(
            name=name,
            group=group,
            unit=row["unit"],
            title=row["title"],
            definition=row["definition"],
            inputs=tuple(row["inputs"]),
            vendor=row.get("vendor", ""),
            layer=Layer(row["layer"]) if "layer" in row else None,
        )
        for group, rows in tomllib.loads(text).items()
        for name, row in rows.items()
    }


def of_group(group: str) -> tuple[str, ...]:
    """Return the names of the metrics that one inspection measures."""
    return tuple(name for name, metric in host_metrics().items() if metric.group == group)


def measured(name: str, entity: str, value: float, detail: str = "", *, source: str = "probe") -> Measurement:
    """Return the value of a host metric, read once."""
    unit = host_metrics()[name].unit
    return Measurement(
        metric=name, entity=entity, value=float(value), unit=unit, count=1, detail=detail, source=source
    )


def not_measured(name: str, entity: str, reason: Reason | None, detail: str) -> Measurement:
    """Return why a host metric has no value; without a reason it is absent."""
    return missing(name, entity, host_metrics()[name].unit, reason or Reason.ABSENT, detail)
