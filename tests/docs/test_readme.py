"""The README's tables say what the code says."""

from __future__ import annotations

import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

import rackgate
from rackgate import plugin
from rackgate.cli import build_parser
from rackgate.evidence.record import KINDS
from rackgate.nouns.verdict import Verdict
from rackgate.plugin import hookspecs
from rackgate.plugin.options import OPTIONS
from rackgate_fixtures import plugin as fixtures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def table(heading, column=0, page=README):
    """First cells of the table below a heading."""
    text = page.split(f"{heading}\n", 1)[1]
    rows = re.findall(r"(?m)^\| (.+?) \|$", text.split("\n#", 1)[0])
    return [re.split(r"(?<!\\) \| ", row)[column] for row in rows if not row.startswith("---")][1:]


def test_every_option_stands_in_the_readme_with_its_form():
    expected = [f"{option.cli} {option.metavar}".strip() for option in OPTIONS]
    assert expected == [cell.strip("`").replace("\\|", "|") for cell in table("### Options")]


def test_every_marker_stands_in_the_readme():
    expected = [marker.split(":")[0] for marker in plugin.MARKERS]
    assert expected == [cell.strip("`") for cell in table("### Markers", page=EXTENDING)]


def test_every_fixture_stands_in_the_readme_with_its_scope():
    shown = {
        name.strip("`"): scope
        for name, scope in zip(
            table("### Fixtures", page=EXTENDING), table("### Fixtures", 1, EXTENDING), strict=True
        )
    }
    actual = {name: getattr(fixtures, name)._fixture_function_marker.scope for name in fixtures.__all__}
    assert actual == shown


def test_every_fixture_has_an_example_in_its_docstring():
    bare = [name for name in fixtures.__all__ if "Example::" not in (getattr(fixtures, name).__doc__ or "")]
    assert [] == bare


def test_every_hook_stands_in_the_readme_with_its_exact_signature():
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_rack_")]
    expected = {
        f"{name}({', '.join(inspect.signature(getattr(hookspecs, name)).parameters)})" for name in hooks
    }
    assert expected == {cell.strip("`") for cell in table("### Hooks", page=EXTENDING)}


def test_every_hook_has_an_example_to_paste():
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_rack_")]
    assert [] == [name for name in hooks if "Example::" not in (getattr(hookspecs, name).__doc__ or "")]


def test_what_the_examples_of_hooks_register_stands_whole_on_its_page():
    names = re.findall(r'register\("[\w.]+", (?:"\w+", )?(\w+)', inspect.getsource(hookspecs))
    assert {"over_srun", "answer_tokens", "PauseEngine", "as_csv"} == set(names)
    assert [] == [name for name in names if not re.search(rf"(?m)^(?:def|class) {name}\(?", EXTENDING)]


def test_every_record_kind_stands_in_the_readme_with_its_meaning():
    text = README.split("### The run folder and its records", 1)[1].split("\n### ", 1)[0]
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (.+?) \|$", text))
    assert KINDS == rows


def test_every_verdict_stands_in_the_readme():
    assert [str(verdict) for verdict in Verdict] == [
        cell.strip("`") for cell in table("## What the answer means")
    ]


def test_every_command_stands_in_the_readme():
    (choices,) = (action.choices for action in build_parser()._actions if action.choices)
    shown = {cell.strip("`").split()[1] for cell in table("### The `rackgate` command")}
    assert set(choices) == shown


def _written(heading, language, page=README):
    """The code blocks of a language below a heading."""
    return re.findall(
        rf"(?ms)^```{language}\n(.*?)^```", page.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    )


def test_the_rack_of_the_readme_is_a_whole_target_on_which_every_card_is_used():

    from rackgate.config.target_file import parse_target
    from rackgate.engines.launchers import register_launchers
    from rackgate.metrics.registry import Registry

    registry = Registry()
    register_launchers(registry.add_engine)
    (text,) = _written("## Your own endpoint, your own rack", "toml")
    target = parse_target(tomllib.loads(text), "README.md", registry.check_settings)
    used = {card for engine in target.engines for card in engine.cards}
    assert ("accelerator", {card.name for card in target.cards}) == (target.grade, used)


def test_the_rows_of_the_readme_lie_over_the_shipped_ones(tmp_path):
    from rackgate.config.acceptance_file import load_acceptance
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    rows = _written("## Write your own", "toml", EXTENDING)[0]
    file = tmp_path / "agreed.toml"
    file.write_text(rows, encoding="utf-8")
    agreed = load_acceptance(file, "smoke", metrics=registry.metrics, target=None)
    assert (300.0, 35.0) == (
        agreed.slo("single_card.ttft_p95").bound,
        agreed.slo("soak.answers_per_second").bound,
    )


def test_the_readme_names_every_launcher_grade_and_profile():
    from rackgate.config.acceptance_tables import PROFILES
    from rackgate.engines.launchers import settings_checkers
    from rackgate.nouns.target import GRADES
    from rackgate_reports.digest.overview import GRADES as SHOWN

    cells = set(re.findall(r"(?m)^\| `(\w+)` \|", README))
    assert set() == {*settings_checkers(), *GRADES, *PROFILES} - {"simulated"} - cells
    assert set(GRADES) == set(SHOWN)


def test_every_metric_that_ships_is_defined_on_its_page():
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    told = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    loads = [name for name, metric in registry.metrics.items() if metric.needs_load]
    assert [] == [name for name in loads if f"`{name}`" not in told and not name.startswith("survivor_")]


def test_options_and_their_files_are_joined():
    pages = ["README.md", "docs/engines.md", "docs/metrics.md", "Makefile", "examples/accept_real.sh"]
    apart = [
        (page, found)
        for page in pages
        for found in re.findall(
            r"(?m)^[^|\n]*pytest[^|\n]* (--rack-(?:target|slo|out) \S+)",
            (ROOT / page).read_text(encoding="utf-8"),
        )
    ]
    assert [] == apart


@pytest.mark.parametrize(
    "page",
    [
        *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
        *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_every_link_of_a_page_leads_to_a_file(page):
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [] == [link for link in links if not (path.parent / link).exists()]


def test_the_architecture_names_every_room_and_opens_only_files_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:plugins|fixtures|suites|reports)/[\w/.*]+)`", text))
    assert [] == sorted(path for path in named if not list(ROOT.glob(path.rstrip("/"))))
    rooms = {module.name for module in pkgutil.iter_modules(rackgate.__path__)}
    assert set() == {room for room in rooms if f"`{room}" not in text}
