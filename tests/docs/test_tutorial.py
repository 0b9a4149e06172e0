"""Every command of the tutorial runs as it stands, in the order of the page, and ends as it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?ms)^```(sh|toml)\n(.*?)^```")


def _commands(tmp_path):
    for language, text in BLOCK.findall(PAGE):
        if language == "toml":
            (tmp_path / re.match(r"# (\S+)\n", text)[1]).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            command, _, told = line.partition("#")
            if not command.startswith("pip "):
                yield shlex.split(command), {int(code) for code in re.findall(r"\d", told)} or {0}


def test_every_command_of_the_tutorial_ends_as_the_page_says(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    count = 0
    for command, codes in _commands(tmp_path):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode in codes, (command, done.stdout[-3000:], done.stderr[-1000:])
        count += 1
    assert count == 7
    assert (tmp_path / "hot" / "views" / "default" / "report.html").exists()
