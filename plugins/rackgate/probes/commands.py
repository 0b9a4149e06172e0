"""Command lines of probes: placeholders, result file, container and srun."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rackgate.hosts.runner import Command
from rackgate.nouns.node import Card
from rackgate.probes.probe import Probe

_DEVICES = {
    "nvidia": ("--gpus", "all"),
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video"),
}
_TO_STDOUT = 'd=$(mktemp -d) || exit 1; f="$d/result"; { %s ; } >&2; s=$?; cat "$f"; rm -rf "$d"; exit $s'
_MOST_CHARACTERS = 120


def filled(words: tuple[str, ...], places: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a command with `{node}`, `{peer}`, `{nodes}` and `{cards}` filled in."""
    found = []
    for word in words:
        text = word
        for name, value in places.items():
            text = text.replace(f"{{{name}}}", value)
        found.append(text)
    return tuple(found)


def command_of(
    probe: Probe, words: tuple[str, ...], node: str, cards: tuple[Card, ...], *, peer: bool = False
) -> Command:
    """Return the command of a node; a result in a file is printed as its output."""
    inner = words
    if any("{output}" in word for word in words):
        line = " ".join(shlex.quote(word).replace("{output}", "'\"$f\"'") for word in words)
        inner = ("sh", "-c", _TO_STDOUT % line)
    if probe.where == "container":
        inner = (*_container(probe, cards[0].vendor if cards else ""), *inner)
    elif probe.where == "srun":
        minutes = str(max(1, round(probe.deadline_s / 60 + 0.5)))
        one = ("--quiet", "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--time={minutes}")
        inner = ("srun", *one, *probe.options, *inner)
    return Command(
        argv=inner,
        silence_s=None if peer else probe.silence_s,
        known_as=f"probe.{probe.name}{'.peer' if peer else ''}",
        cards=len(cards),
    )


def _container(probe: Probe, vendor: str) -> tuple[str, ...]:
    # A container outlives its killed client: `timeout` inside the container ends it at the deadline.
    return (
        *("docker", "run", "--rm", "--init", "--network", "host", "--ipc", "host"),
        *_DEVICES.get(vendor, ()),
        *probe.options,
        *("--entrypoint", "timeout", probe.image, "-k", "5", str(round(probe.deadline_s))),
    )


def shown_command(command: Command) -> str:
    """Return the command line for people; a long word, such as a script, is cut."""
    return shlex.join(
        word if len(word) <= _MOST_CHARACTERS else f"{word[:_MOST_CHARACTERS].splitlines()[0]}..."
        for word in command.argv
    )
