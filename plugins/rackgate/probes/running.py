"""Runs a probe on many nodes at the same time, with a peer where it needs one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from rackgate.hosts.runner import Command, LocalRunner, Ran, Runner
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Node
from rackgate.nouns.target import Target
from rackgate.probes.commands import command_of, filled, shown_command
from rackgate.probes.outputs import answer_from_file, answer_of
from rackgate.probes.probe import Answer, Probe, ProbedNode
from rackgate.probes.strict_json import shown
from rackgate.telemetry.assembly import plan_of, runner_of

ONCE = "rack"
"""Stands for the node of a probe that runs once, on this machine."""

_MOST_AT_ONCE = 32
_LISTENS_WITHIN_S = 15.0
_PAUSE_S = 0.3
_STARTED_BY_US = ("process", "container", "kubernetes", "simulated")


def busy_cards(target: Target, *, engines_up: bool) -> dict[str, str]:
    """Return the cards in use with their engine; `engines_up` adds the engines that the run itself starts."""
    return {
        card: engine.name
        for engine in target.engines
        if engine.launcher != "simulated" and (engines_up or engine.launcher not in _STARTED_BY_US)
        for card in engine.cards
    }


def run_on_nodes(
    probe: Probe,
    target: Target,
    nodes: Sequence[str],
    *,
    left_out: Iterable[str] = (),
    busy: Mapping[str, str] | None = None,
) -> list[Answer]:
    """Return the answer of each node (`ONCE` for a probe that runs here), in the order given.

    At most 32 nodes run it at a time; probes of several nodes run one after the other. `left_out` holds
    declared cards that this run leaves out, `busy` the cards that an engine uses.
    """
    known = {ONCE, *left_out, *(node.name for node in target.nodes), *(card.name for card in target.cards)}
    run = _ProbeRun(probe, target, frozenset(known), dict(busy or {}))
    width = 1 if probe.peer_command or probe.nodes > 1 else min(_MOST_AT_ONCE, max(1, len(nodes)))
    with ThreadPoolExecutor(max_workers=width) as pool:
        return list(pool.map(run.on, nodes))


class _ProbeRun:
    """Runs one probe on the nodes of one target."""

    def __init__(self, probe: Probe, target: Target, known: frozenset[str], busy: Mapping[str, str]) -> None:
        self._probe = probe
        self._target = target
        self._known = known
        self._busy = busy
        self._plan = plan_of(target)

    def on(self, name: str) -> Answer:
        """Return the answer of a node; a failure of the node is an answer, too."""
        probe = self._probe
        node = next((one for one in self._target.nodes if one.name == name), None)
        probed = self._probed_node(name, node)
        answer = Answer(node=name, command=" ".join(probe.command[:3]), asked=False)
        if probe.result:
            return answer_from_file(probe, probed, self._known, answer)
        if not probe.command:
            text = f'no command is given: [probe.{probe.name}] command = ["..."], or a result'
            return replace(answer, reason=Reason.NOT_CONFIGURED, detail=text)
        cards = (*probed.cards.values(), *(card.name for one in self._group(name) for card in one.cards))
        held = {self._busy[card] for card in cards if card in self._busy}
        if probe.idle_cards and held:
            where = name if probe.nodes == 1 else f"{name} or a node beside it"
            text = f"{', '.join(sorted(held))} serves on {where} already, and the probe wants idle cards"
            hint = f"run it before the engine is started, and give its file as [probe.{probe.name}] result"
            return replace(answer, reason=Reason.EXCLUDED, detail=text, hint=hint)
        runner = self._runner(name, node)
        if runner is None:
            text = f"the target gives no way into the host of {name} ([node.telemetry] local, ssh or docker)"
            return replace(answer, reason=Reason.NOT_CONFIGURED, detail=text)
        return self._run(runner, name, probed, answer)

    def _run(self, runner: Runner, name: str, probed: ProbedNode, answer: Answer) -> Answer:
        probe, peer, group = self._probe, self._peer_of(name), self._group(name)
        places = {"node": name, "peer": peer.name if peer else "", "cards": str(len(probed.cards))}
        places["nodes"] = ",".join(f"{one.name}:{len(one.cards)}" for one in group)
        cards = tuple(card for one in group for card in one.cards)
        command = command_of(probe, filled(probe.command, places), name, cards)
        started = time.monotonic()
        if probe.peer_command and peer is not None:
            listening = command_of(probe, filled(probe.peer_command, places), peer.name, cards, peer=True)
            other = self._runner(peer.name, peer)
            ran = _run_with_peer(runner, command, other, listening, probe.deadline_s)
        else:
            ran = runner.run(command, probe.deadline_s)
        runner.close()
        answer = replace(
            answer, asked=True, command=shown_command(command), duration_s=time.monotonic() - started
        )
        return answer_of(probe, probed, ran, self._known, answer)

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
        """Return the nodes that take part: the probed node, and those after it in the target."""
        names = [node.name for node in self._target.nodes]
        if name not in names:
            return ()
        first = names.index(name)
        return tuple(self._target.nodes[(first + step) % len(names)] for step in range(self._probe.nodes))

    def _probed_node(self, name: str, node: Node | None) -> ProbedNode:
        cards = {} if node is None else {card.index: card.name for card in node.cards}
        out = [card for card in self._known if card.startswith(f"{name}/gpu")]
        cards |= {int(card.rpartition("gpu")[2]): card for card in out}
        listed = node.cards if node is not None else ()
        return ProbedNode(
            name=name,
            cards=cards,
            serials={card.serial: card.index for card in listed if card.serial},
            expects=self._probe.expects,
            may_skip=frozenset(self._probe.may_skip),
            ranks=max(len(cards), sum(len(one.cards) for one in self._group(name))),
        )


def _run_with_peer(
    runner: Runner, command: Command, peer: Runner | None, listening: Command, deadline_s: float
) -> Ran:
    """Return the run of a command whose peer must listen; it is repeated while the peer starts.

    If the peer ended before the command reached it, the run has the reason of the peer.
    """
    if peer is None:
        return Ran(reason=Reason.NOT_CONFIGURED, detail="the target gives no way into the next node")
    pool = ThreadPoolExecutor(max_workers=1)
    served = pool.submit(_serve, peer, listening, deadline_s)
    ran = _run_until_peer_listens(runner, command, served, deadline_s)
    why = "" if ran.ok else _why_ended(served)
    pool.shutdown(wait=False)  # a peer that is still listening ends at its own deadline
    if why:
        return Ran(reason=Reason.DIED, detail=f"{peer.name} does not listen: {why}")
    return ran


def _serve(peer: Runner, listening: Command, deadline_s: float) -> Ran:
    with closing(peer):
        return peer.run(listening, deadline_s)


def _run_until_peer_listens(runner: Runner, command: Command, served: Future[Ran], deadline_s: float) -> Ran:
    ends = time.monotonic() + min(_LISTENS_WITHIN_S, deadline_s)
    ran = runner.run(command, deadline_s)
    while ran.status and ran.reason is None and time.monotonic() < ends and not _why_ended(served):
        time.sleep(_PAUSE_S)
        ran = runner.run(command, deadline_s)
    return ran


def _why_ended(served: Future[Ran]) -> str:
    """Return why a peer failed, "" while it runs or after it ended well."""
    if not served.done() or served.result().ok:
        return ""
    ran = served.result()
    return ran.detail or shown(ran.error or ran.text)
