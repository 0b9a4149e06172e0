"""Classes of work as loads that are ready to offer: the ones that ship with the acceptance rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from rackgate.config.acceptance_tables import LoadTable
from rackgate.config.problems import read_toml
from rackgate.nouns.load import Load


@cache
def workloads() -> Mapping[str, Load]:
    """Return the load of each class by its name."""
    path = files("rackgate.config").joinpath("acceptance", "workloads.toml")
    tables = read_toml(Path(str(path)))["load"]
    return {name: LoadTable.model_validate(table).noun(name) for name, table in tables.items()}
