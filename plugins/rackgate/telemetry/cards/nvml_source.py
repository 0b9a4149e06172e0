"""Card source: NVML of this machine, called in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rackgate.hosts.child_process import Child, ChildDied, ChildHangs
from rackgate.hosts.tools.nvidia_smi_inventory import ListedCard
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.cards.nvml_protocol import ALL, BRIEF, FULL, Numbers, answer_of
from rackgate.telemetry.reading import REQUIRED, Reading, missing_readings

_SLOW_S, _FULL_S = 5.0, 0.9  # between two full looks; a little less than the second that is meant
_PROBLEMS = {
    9: (Reason.NOT_CONFIGURED, "driver_not_loaded: the kernel module does not answer"),
    12: (Reason.TOOL_MISSING, "library_not_found: libnvidia-ml.so.1 is not installed here"),
    18: (
        Reason.NOT_CONFIGURED,
        "driver_library_mismatch: library and kernel module differ; reload or reboot",
    ),
    4: (Reason.NO_PERMISSION, "no access to /dev/nvidiactl: add this user to the group that owns it"),
}


class NvmlSource:
    """Readings of a node's cards, and each XID event that the driver tells.

    Slow fields come every `slow_s`; what moves by seconds (memory, margin, energy, utilisation) every
    `full_s`; temperature, power, SM clock and clock events at each poll.

    `facts` and `driver` are what the cards and the driver said they are, after the first poll.
    """

    def __init__(
        self,
        node: Node,
        *,
        deadline_s: float = 2.0,
        slow_s: float = _SLOW_S,
        full_s: float = _FULL_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"nvml {node.name}"
        self.facts: dict[int, dict[str, str | None]] = {}
        self.driver: dict[str, str | None] = {}
        self.problem = ""
        self._node = node
        self._deadline_s = deadline_s
        self._slow_s = slow_s
        self._full_s = full_s
        self._child = Child("rackgate.telemetry.cards.nvml_worker", environment)
        self._slow_at = self._full_at = -1e9
        self._events_problem = ""
        self._words: Mapping[str, Any] = {}
        self._signals: list[tuple[str, str]] = []
        self._places: list[int | None] = [self._index_of(card) for card in node.cards]

    def poll(self) -> list[Reading]:
        """Return every field of each declared card, or why there is none."""
        now_s = time.monotonic()
        slow, brief = now_s - self._slow_at >= self._slow_s, now_s - self._full_at < self._full_s
        try:
            question = ALL if slow else BRIEF if brief else FULL
            told = self._child.ask(question, answer_of, self._deadline_s)
        except ChildHangs as error:
            self._slow_at = -1e9
            return self.nothing(Reason.TIMEOUT, f"driver unresponsive: {error}")
        except ChildDied as error:
            self._slow_at = -1e9
            return self.nothing(Reason.DIED, f"the process that asks NVML ended: {error}")
        if not isinstance(told, dict):
            return self._moved(told)
        answer = told
        if "problem" in answer:
            known = (Reason.INSTRUMENT, f"NVML {answer['problem']}: {answer['text']}")
            return self.nothing(*_PROBLEMS.get(answer["problem"], known))
        if slow:
            self._slow_at = now_s
        if slow or not brief:
            self._full_at = now_s
        if "facts" in answer:
            self.facts = {int(index): facts for index, facts in answer["facts"].items()}
            self.driver = answer["driver"]
            self.problem = self._events_problem = answer["events_problem"]
            self._places = [self._index_of(card) for card in self._node.cards]
        self._words, self._signals = answer, self._signals_of(answer)
        readings = self._readings(answer)
        return [*readings, self._watching(int(answer["t_ns"]))] if slow else readings

    def nothing(self, reason: Reason, detail: str) -> list[Reading]:
        """Return the required fields of each card without a value."""
        self.problem = detail
        return missing_readings(self._node, time.perf_counter_ns(), reason, detail)

    def listed(self) -> tuple[ListedCard, ...] | None:
        """Return every card that the driver told of; None before it answered."""
        found = tuple(
            ListedCard(
                index=index,
                pci=facts.get("pci"),
                uuid=facts.get("uuid"),
                serial=facts.get("serial"),
                part=facts.get("part"),
                vbios=facts.get("vbios"),
                name=facts.get("name"),
                persistence={"1": "Enabled", "0": "Disabled"}.get(facts.get("persistence") or ""),
                ecc={"1": "Enabled", "0": "Disabled"}.get(facts.get("ecc") or ""),
                fabric_domain=facts.get("fabric"),
            )
            for index, facts in self.facts.items()
        )
        return found or None

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _moved(self, numbers: Numbers) -> list[Reading]:
        """Return what the numbers say of the cards of the words before, of which none was lost since."""
        t_ns, node = int(numbers[0]), self._node.name
        readings = [
            Reading(t_ns, node, entity, field, value)
            for (entity, field), value in zip(self._signals, numbers[1:], strict=True)
            if entity
        ]
        for card, index in zip(self._node.cards, self._places, strict=True):
            if index is None or str(index) not in self._words["cards"]:
                readings += self._lost(card, index, self._words, t_ns)
        return readings

    def _signals_of(self, answer: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return entity and field of each number that may follow; no entity for a card not declared."""
        places = zip(self._places, self._node.cards, strict=True)
        entities = {str(index): card.name for index, card in places}
        return [(entities.get(index, ""), field) for index in answer["cards"] for field in REQUIRED]

    def _readings(self, answer: Mapping[str, Any]) -> list[Reading]:
        node, t_ns, fields = self._node.name, int(answer["t_ns"]), answer["fields"]
        entities: dict[int, str] = {}
        readings: list[Reading] = []
        for card, index in zip(self._node.cards, self._places, strict=True):
            values = None if index is None else answer["cards"].get(str(index))
            if index is None or values is None:
                readings += self._lost(card, index, answer, t_ns)
                continue
            entities[index] = card.name
            for field, value in zip(fields, values, strict=True):
                if type(value) is list:
                    reason, detail = value
                    readings.append(Reading(t_ns, node, card.name, field, None, Reason(reason), detail))
                else:
                    readings.append(Reading(t_ns, node, card.name, field, value))
        for event in answer["events"]:
            entity = entities.get(event["index"], node)
            readings.append(Reading(int(event["t_ns"]), node, entity, "xid", float(event["xid"])))
        return readings

    def _watching(self, t_ns: int) -> Reading:
        """Return whether the driver tells XIDs as events; else the kernel's log alone has them."""
        name, told = self._node.name, not self._events_problem
        reason = None if told else Reason.UNSUPPORTED
        return Reading(t_ns, name, name, "xid_events", 1.0 if told else None, reason, self._events_problem)

    def _index_of(self, card: Card) -> int | None:
        by_uuid = (index for index, facts in self.facts.items() if card.uuid and facts["uuid"] == card.uuid)
        found = next(by_uuid, None)
        return found if found is not None or card.uuid else card.index

    def _lost(self, card: Card, index: int | None, answer: Mapping[str, Any], t_ns: int) -> list[Reading]:
        code = answer["refused"].get(str(card.index if index is None else index))
        detail = f"NVML lists no card with UUID {card.uuid}" if card.uuid else "NVML lists no such card"
        if code is not None:
            detail = f"NVML gives no handle of card {card.index} (code {code}): lost, or it wants a reset"
        return [
            Reading(t_ns, self._node.name, card.name, field, None, Reason.ABSENT, detail)
            for field in REQUIRED
        ]
