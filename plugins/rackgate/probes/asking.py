"""Asks a probe of many nodes side by side, and says of each whether it was asked and whether it answered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rackgate.hosts.runner import LocalRunner, Runner
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.nouns.target import Target
from rackgate.probes.commands import command_of, filled, shown_command
from rackgate.probes.peers import run_with_peer
from rackgate.probes.probe import Answer, Asked, Probe
from rackgate.probes.reading import answer_of
from rackgate.probes.results import answer_from_file
from rackgate.telemetry.assembly import plan_of, runner_of

ONCE = "rack"
"""Stands for the node where a probe runs once, on this machine."""

_WIDTH = 32
_STARTED_BY_US = ("process", "container", "kubernetes", "simulated")


def busy_cards(target: Target, *, engines_up: bool) -> dict[str, str]:
    """Return the cards that an engine holds now, with its name; before a run starts its own, only others'."""
    return {
        card: engine.name
        for engine in target.engines
        if engine.launcher != "simulated" and (engines_up or engine.launcher not in _STARTED_BY_US)
        for card in engine.cards
    }


def ask_nodes(
    probe: Probe,
    target: Target,
    nodes: Sequence[str],
    *,
    left_out: Iterable[str] = (),
    busy: Mapping[str, str] | None = None,
) -> list[Answer]:
    """Return the answer of each node (`ONCE` for a probe that runs here), in the order given.

    At most 32 nodes are asked at a time, and those of pairs one after the other. `left_out` are declared
    cards that this run is not about; `busy` those that an engine holds.
    """
    known = {ONCE, *left_out, *(node.name for node in target.nodes), *(card.name for card in target.cards)}
    asking = _Asking(probe, target, frozenset(known), dict(busy or {}))
    width = 1 if probe.peer_command or probe.nodes > 1 else min(_WIDTH, max(1, len(nodes)))
    with ThreadPoolExecutor(max_workers=width) as pool:
        return list(pool.map(asking.ask, nodes))


class _Asking:
    """One probe at one target."""

    def __init__(self, probe: Probe, target: Target, known: frozenset[str], busy: Mapping[str, str]) -> None:
        self._probe = probe
        self._target = target
        self._known = known
        self._busy = busy
        self._plan = plan_of(target)

    def ask(self, name: str) -> Answer:
        """Return one node's answer; nothing is raised for what the node does."""
        probe = self._probe
        node = next((one for one in self._target.nodes if one.name == name), None)
        asked = self._asked(name, node)
        answer = Answer(node=name, command=" ".join(probe.command[:3]), asked=False)
        if probe.result:
            return answer_from_file(probe, asked, self._known, answer)
        if not probe.command:
            text = f'no command is given: [probe.{probe.name}] command = ["..."], or a result'
            return replace(answer, reason=Reason.NOT_CONFIGURED, detail=text)
        wanted = (*asked.cards.values(), *(card.name for one in self._group(name) for card in one.cards))
        held = {self._busy[card] for card in wanted if card in self._busy}
        if probe.idle_cards and held:
            where = name if probe.nodes == 1 else f"{name} or a node beside it"
            told = f"{', '.join(sorted(held))} serves on {where} already, and the probe wants idle cards"
            return replace(answer, reason=Reason.EXCLUDED, detail=told, hint=_before(probe))
        runner = self._runner(name, node)
        if runner is None:
            text = f"the target gives no way into the host of {name} ([node.telemetry] local, ssh or docker)"
            return replace(answer, reason=Reason.NOT_CONFIGURED, detail=text)
        return self._run(runner, name, asked, answer)

    def _run(self, runner: Runner, name: str, asked: Asked, answer: Answer) -> Answer:
        probe, peer, group = self._probe, self._peer_of(name), self._group(name)
        places = {"node": name, "peer": peer.name if peer else "", "cards": str(len(asked.cards))}
        places["nodes"] = ",".join(f"{one.name}:{len(one.cards)}" for one in group)
        cards = tuple(card for one in group for card in one.cards)
        command = command_of(probe, filled(probe.command, places), name, cards)
        started = time.monotonic()
        if probe.peer_command and peer is not None:
            listening = command_of(probe, filled(probe.peer_command, places), peer.name, cards, peer=True)
            other = self._runner(peer.name, peer)
            ran = run_with_peer(runner, command, other, listening, probe.deadline_s)
        else:
            ran = runner.run(command, probe.deadline_s)
        runner.close()
        answer = replace(
            answer, asked=True, command=shown_command(command), duration_s=time.monotonic() - started
        )
        return answer_of(probe, asked, ran, self._known, answer)

    def _runner(self, name: str, node: Node | None) -> Runner | None:
        if self._probe.where in ("srun", "here") or node is None:
            return LocalRunner(name)
        return runner_of(name, node.access, self._plan)

    def _peer_of(self, name: str) -> Node | None:
        names = [node.name for node in self._target.nodes]
        if name not in names or len(names) < 2:
            return None
        return self._target.nodes[(names.index(name) + 1) % len(names)]

    def _group(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that take part: the one that is asked, and those that follow it in the target."""
        names = [node.name for node in self._target.nodes]
        if name not in names:
            return ()
        first = names.index(name)
        return tuple(self._target.nodes[(first + step) % len(names)] for step in range(self._probe.nodes))

    def _asked(self, name: str, node: Node | None) -> Asked:
        cards = {} if node is None else {card.index: card.name for card in node.cards}
        out = [card for card in self._known if card.startswith(f"{name}/gpu")]
        cards |= {int(card.rpartition("gpu")[2]): card for card in out}
        listed = node.cards if node is not None else ()
        return Asked(
            node=name,
            cards=cards,
            serials={card.serial: card.index for card in listed if card.serial},
            expects=self._probe.expects,
            may_skip=frozenset(self._probe.may_skip),
            ranks=max(len(cards), sum(len(one.cards) for one in self._group(name))),
        )


def _before(probe: Probe) -> str:
    return f"run it before the engine is started, and give its file as [probe.{probe.name}] result"
