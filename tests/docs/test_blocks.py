"""Every block of the pages is taken as it stands: targets are parsed, rows laid over, commands understood."""

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from rackgate.cli import build_parser
from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.engines.launchers import register_launchers
from rackgate.metrics.registry import Registry
from rackgate.plugin.options import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]

ENGINE = '[[engine]]\nname = "one"\nlauncher = "container"\n'
ENGINE += '[engine.settings]\nimage = "one:1"\ncommand = ["one"]\n'
REST = {
    "target": '[target]\nname = "rack"\nmodel = "one"\n',
    "node": "".join(f'[[node]]\nname = "{name}"\ncards = 1\n' for name in ("local", "node-b")),
    "engine": ENGINE,
}
"""What a whole target has besides the table that a page is about."""


def _blocks(language):
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for number, block in enumerate(re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)):
            yield pytest.param(block, id=f"{page}-{number}")


def _whole(block):
    """Return a block with the rest of a target before it; a part of an engine follows one."""
    tables = set(re.findall(r"(?m)^\[+(\w+)", block))
    part = not re.search(r"(?m)^\[\[engine\]\]", block) and "engine" in tables
    rest = [text for name, text in REST.items() if name not in tables or (name == "engine" and part)]
    return tomllib.loads("".join(rest) + block)


@pytest.mark.parametrize("block", list(_blocks("toml")))
def test_a_page_shows_a_target_or_rows_without_a_mistake(block, tmp_path, metrics):
    if re.search(r"(?m)^\[\[slo\]\]|^\[probe\.", block):
        file = tmp_path / "agreed.toml"
        file.write_text(block, encoding="utf-8")
        ours = replace(metrics["request_throughput"], unit="tokens")  # README writes it
        known = {**metrics, "answer_tokens": ours}
        load_acceptance(file, "signoff", metrics=known, target=None)
        return
    registry = Registry()
    register_launchers(registry.add_engine)
    problems = _problems(_whole(block), registry)
    assert [] == [one for one in problems if "No such file or directory" not in one]


def _problems(document, registry):
    try:
        parse_target(document, "page.toml", registry.check_settings)
    except ConfigError as error:
        return error.problems
    return ()


def _lines(program):
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for block in re.findall(r"(?ms)^```sh\n(.*?)^```", text):
            for line in block.splitlines():
                if line.startswith(f"{program} "):
                    yield pytest.param(shlex.split(line, comments=True)[1:], id=line)


@pytest.mark.parametrize("words", list(_lines("rackgate")))
def test_a_page_shows_commands_that_there_are(words):
    assert build_parser().parse_args(words).run


@pytest.mark.parametrize("words", list(_lines("pytest")))
def test_a_page_shows_options_that_there_are(words):
    given = [word.split("=")[0] for word in words if word.startswith("--rack")]
    assert set() == set(given) - {option.cli for option in OPTIONS}
