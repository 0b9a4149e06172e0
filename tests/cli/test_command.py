import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

COMMAND = Path(sys.executable).with_name("rackgate")


def test_the_command_prints_the_version_of_the_distribution():
    ran = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert (0, f"rackgate {version('pytest-rackgate')}\n", "") == (ran.returncode, ran.stdout, ran.stderr)


def test_without_a_command_the_command_says_what_it_can_do():
    ran = subprocess.run([COMMAND], capture_output=True, text=True, check=False, timeout=60)
    assert 2 == ran.returncode
    assert "--version" in ran.stderr
