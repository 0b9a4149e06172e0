"""The options of a run: command line over environment over ini over default, decided here."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.mark.expression import Expression


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_MANY_MARKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: `--rack-NAME`, ini `rack_NAME`, environment `RACKGATE_NAME`."""

    name: str
    metavar: str
    help: str
    default: str = ""
    flag: bool = False

    @property
    def cli(self) -> str:
        """`--rack-target`."""
        return f"--rack-{self.name}"

    @property
    def ini(self) -> str:
        """`rack_target`."""
        return f"rack_{self.name.replace('-', '_')}"

    @property
    def environment(self) -> str:
        """`RACKGATE_TARGET`."""
        return f"RACKGATE_{self.name.replace('-', '_').upper()}"


OPTIONS = (
    Option(
        name="target",
        metavar="FILE|local|sim|sim:NODESxCARDS|URL",
        default="sim",
        help="the rack: a target file, this machine, the simulated rack, or the URL of one running endpoint",
    ),
    Option(name="model", metavar="NAME", help="the model to ask for when the target is a URL"),
    Option(name="slo", metavar="FILE", help="acceptance file, laid over the shipped rows by id"),
    Option(
        name="profile",
        metavar="NAME",
        default="smoke",
        help="smoke, ci, golive, signoff or strict: how long and how hard",
    ),
    Option(name="stage", metavar="NAME[,NAME]", help="run only these stages; the run is then partial"),
    Option(
        name="only", metavar="ENTITY[,ENTITY]", help="test only these nodes or cards; the run is then partial"
    ),
    Option(
        name="exclude",
        metavar="ENTITY[,ENTITY]",
        help="leave out these nodes or cards; the run is then partial",
    ),
    Option(name="out", metavar="DIR", help="the run folder itself; default rack-runs/UTC-PROFILE"),
    Option(name="seed", metavar="N", default="1", help="seed of every prompt and arrival"),
    Option(name="scenario", metavar="NAME", default="healthy", help="what is wrong with the simulated rack"),
    Option(
        name="host-root",
        metavar="DIR",
        help="a folder that stands in for every node's host, DIR/NODE where there is one: graded simulated",
    ),
    Option(
        name="stop-on-fail",
        metavar="",
        help="end at the first stage with a blocker that is not met",
        flag=True,
    ),
)
"""Every option, in the order of the help text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The resolved options; `values` holds them as given, `origins` says where each came from."""

    target: str
    model: str
    slo: str
    profile: str
    stages: tuple[str, ...]
    only: tuple[str, ...]
    exclude: tuple[str, ...]
    out: str
    seed: int
    scenario: str
    host_root: str
    stop_on_fail: bool
    values: Mapping[str, str]
    origins: Mapping[str, str]

    def shown(self) -> tuple[str, ...]:
        """Return what differs from the defaults: `--rack-profile=ci (ini rack_profile)`."""
        return tuple(
            f"--rack-{name}={self.values[name]} ({origin})"
            for name, origin in self.origins.items()
            if origin != "default"
        )


def add_options(parser: pytest.Parser) -> None:
    """Add every option to pytest's command line and ini file."""
    group = parser.getgroup("rackgate", "acceptance of a rack for LLM inference (rackgate)")
    for option in OPTIONS:
        text = f"{option.help}{f' (default: {option.default})' if option.default else ''}"
        if option.flag:
            group.addoption(option.cli, action="store_true", default=None, help=text)
        else:
            group.addoption(option.cli, metavar=option.metavar, default=None, help=text)
        parser.addini(option.ini, text, default="")


def marker_expression(config: pytest.Config) -> Expression | None:
    """Return the parsed `-m`; None if there is none or pytest itself will refuse it."""
    from _pytest.mark.expression import Expression

    try:
        return Expression.compile(str(config.getoption("markexpr", "") or ""))
    except (SyntaxError, pytest.UsageError):
        return None


def is_active(config: pytest.Config) -> bool:
    """Return whether this pytest run is an acceptance run.

    True if `-m` selects `rack_acceptance`, an option is given on the command line, or an argument names
    the suites. Anything else leaves the plugin inert.
    """
    given = any(config.getoption(option.cli, None) is not None for option in OPTIONS)
    named = config.args_source is pytest.Config.ArgsSource.ARGS and any(
        "rackgate_suites" in argument for argument in config.args
    )
    return given or named or _selects_acceptance(config)


def _selects_acceptance(config: pytest.Config) -> bool:
    """Return whether there is a test that `-m` selects because it is marked `rack_acceptance`."""
    expression = marker_expression(config)
    if expression is None or "rack_acceptance" not in expression.idents():
        return False
    others = sorted(expression.idents() - {"rack_acceptance"})[:_MANY_MARKERS]
    for values in itertools.product((False, True), repeat=len(others)):
        has = dict(zip(others, values, strict=True))
        with_it, without_it = (
            _evaluate(expression, {**has, "rack_acceptance": is_so}) for is_so in (True, False)
        )
        if with_it and not without_it:
            return True
    return False


def _evaluate(expression: Expression, has: Mapping[str, bool]) -> bool:
    def matches(name: str, /, **arguments: str | int | bool | None) -> bool:
        del arguments
        return has.get(name, False)

    return expression.evaluate(matches)


def is_dry(config: pytest.Config) -> bool:
    """Return whether pytest only lists what there is (`--collect-only`, `--fixtures`)."""
    return any(
        config.getoption(name, default=False)
        for name in ("collectonly", "showfixtures", "show_fixtures_per_test")
    )


def resolve_options(config: pytest.Config) -> tuple[Options, list[str]]:
    """Return the options and one line for each value of the wrong type."""
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for option in OPTIONS:
        values[option.name], origins[option.name] = _resolve(option, config)
    _prefer_this_machine(values, origins)
    problems: list[str] = []
    seed = int(values["seed"]) if re.fullmatch(r"[0-9]{1,18}", values["seed"]) else None
    if seed is None:
        problems.append(f"--rack-seed: not a whole number: {values['seed']!r} ({origins['seed']})")
    stop = values["stop-on-fail"].strip().lower()
    if stop not in (*_TRUE, *_FALSE):
        problems.append(f"--rack-stop-on-fail: neither true nor false: {stop!r} ({origins['stop-on-fail']})")
    options = Options(
        target=values["target"],
        model=values["model"],
        slo=values["slo"],
        profile=values["profile"],
        stages=_list(values["stage"]),
        only=_list(values["only"]),
        exclude=_list(values["exclude"]),
        out=values["out"],
        seed=seed or 0,
        scenario=values["scenario"],
        host_root=values["host-root"],
        stop_on_fail=stop in _TRUE,
        values=values,
        origins=origins,
    )
    return options, problems


def _prefer_this_machine(values: dict[str, str], origins: dict[str, str]) -> None:
    """Let preflight alone look at this machine, where nothing says which rack, or that it is simulated."""
    silent = all(
        origins[name] == "default" for name in ("target", "scenario", "host-root", "only", "exclude")
    )
    if silent and _list(values["stage"]) == ("preflight",):
        values["target"], origins["target"] = "local", "default of --rack-stage=preflight"


def _resolve(option: Option, config: pytest.Config) -> tuple[str, str]:
    given = config.getoption(option.cli, None)
    if given is not None:
        return str(given), "command line"
    if os.environ.get(option.environment):
        return os.environ[option.environment], f"environment {option.environment}"
    if config.getini(option.ini):
        return str(config.getini(option.ini)), f"ini {option.ini}"
    return option.default, "default"


def misread_paths(config: pytest.Config) -> list[str]:
    """Return one line for each value that made pytest read another ini file than without it.

    Before it knows any option of ours, pytest takes a value that stands alone and is a path for a
    folder of tests, and looks for its ini file there: the project's own would silently not count.
    """
    from _pytest.config.findpaths import determine_setup

    given = [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    alone = {
        value: option.cli
        for option in OPTIONS
        for name, value in itertools.pairwise(given)
        if name == option.cli and not option.flag and Path(value).exists()
    }
    if not alone or config.getoption("inifilename", None):
        return []
    _, ini, _, _ = determine_setup(
        inifile=None,
        override_ini=None,
        args=[*config.args] if config.args_source is pytest.Config.ArgsSource.ARGS else [],
        rootdir_cmd_arg=None,
        invocation_dir=config.invocation_params.dir,
    )
    if ini == config.inipath:
        return []
    read, lost = (f"{path}" if path else "no ini file" for path in (config.inipath, ini))
    return [
        f"{name} {value}: pytest took the path for its own and reads {read} instead of {lost}:"
        f" write {name}={value}"
        for value, name in alone.items()
    ]


def _list(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())
