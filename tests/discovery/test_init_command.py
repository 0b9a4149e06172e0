import subprocess
import sys
from pathlib import Path

import pytest

from rackgate.cli import main
from rackgate.config.target_file import load_target
from rackgate.engines.launchers import settings_checkers
from rackgate.simulator.rack import start_rack
from rackgate.simulator.settings import RackSettings


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Work in an empty folder on a machine whose driver's library is not found."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_first_file_names_the_cards_engines_and_exporter_that_are_here(here, monkeypatch, stand_in, capsys):
    for name, value in stand_in.environment.items():
        monkeypatch.setenv(name, value)
    with start_rack(RackSettings(nodes=1, cards=1)) as rack:
        assert 0 == main(["init", "--out", "found.toml"])
    target = load_target(here / "found.toml", settings_checkers())
    assert ["NVIDIA H200", "NVIDIA H200"] == [card.sku for card in target.cards]
    assert rack.engines[0].url in {spec.url for spec in target.engines}
    assert "nvml" == target.nodes[0].access.cards
    told = capsys.readouterr().out
    assert "cards      2 (NVIDIA H200), told by nvml" in told
    assert "next: rackgate doctor found.toml" in told


@pytest.mark.usefixtures("here")
def test_a_machine_without_a_card_gets_a_file_that_says_so(folder, capsys):
    assert 0 == main(["init", "--host-root", str(folder)])
    text = Path("rack.toml").read_text(encoding="utf-8")
    assert "library_not_found" in text
    target = load_target(Path("rack.toml"), settings_checkers())
    assert ((), ()) == (target.cards, target.engines)
    assert "cards      none found; to look at, in this order:" in capsys.readouterr().out


def _init(here, *arguments):
    """Run the installed command in the folder."""
    command = Path(sys.executable).with_name("rackgate")
    return subprocess.run(
        [command, "init", *arguments], cwd=here, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("words", [["mine.toml"], ["--out", "mine.toml"], ["--out=mine.toml"]])
def test_the_file_may_be_named_with_or_without_the_option(here, folder, words):
    ran = _init(here, *words, "--host-root", str(folder))
    assert (0, "wrote mine.toml") == (ran.returncode, ran.stdout.splitlines()[0])
    load_target(here / "mine.toml", settings_checkers())
    assert not (here / "rack.toml").exists()


def test_a_named_file_that_is_there_is_never_written_over_unless_asked(here, folder):
    (here / "mine.toml").write_text("mine")
    refused = _init(here, "mine.toml", "--host-root", str(folder))
    assert (2, "mine") == (refused.returncode, (here / "mine.toml").read_text())
    assert "--force" in refused.stderr
    assert 0 == _init(here, "mine.toml", "--force", "--host-root", str(folder)).returncode
    assert "[target]" in (here / "mine.toml").read_text()


def test_two_names_for_one_file_are_refused(here, folder):
    assert 2 == _init(here, "one.toml", "--out", "two.toml", "--host-root", str(folder)).returncode
    assert [] == list(here.glob("*.toml"))


@pytest.mark.usefixtures("here")
def test_a_file_that_is_there_is_never_written_over_unless_asked(folder, capsys):
    Path("rack.toml").write_text("mine")
    assert 2 == main(["init", "--host-root", str(folder)])
    assert "mine" == Path("rack.toml").read_text(encoding="utf-8")
    assert "--force" in capsys.readouterr().err
    assert 0 == main(["init", "--force", "--host-root", str(folder)])
    assert "[target]" in Path("rack.toml").read_text(encoding="utf-8")


@pytest.mark.usefixtures("here")
def test_a_dash_prints_the_file_and_writes_none(folder, capsys):
    assert 0 == main(["init", "-", "--host-root", str(folder)])
    assert capsys.readouterr().out.startswith("# What `rackgate init` found on ")
    assert not Path("rack.toml").exists()


@pytest.mark.usefixtures("here")
def test_a_folder_that_does_not_stand_in_is_refused(capsys):
    assert 4 == main(["init", "--host-root", "nowhere"])
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_folder_that_is_not_there_is_no_place_for_the_file(folder, capsys):
    assert 2 == main(["init", "--out", "nowhere/rack.toml", "--host-root", str(folder)])
    assert "cannot be written" in capsys.readouterr().err
