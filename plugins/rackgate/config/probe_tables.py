"""Table `[probe.NAME]` of an acceptance file, and the probe that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from rackgate.config.fields import Positive, Table
from rackgate.config.problems import nearest
from rackgate.nouns.slo import Scope, Slo
from rackgate.probes.probe import PLACES, Probe, probe_of
from rackgate.probes.tools import Tool, compute_script, tools

_STAGES_WITHOUT_PROBES = ("selfcheck", "batch_retry")
"""Stages of the load generator and of a batch: they ask nothing of nodes."""

_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
_PLACE = f"^({'|'.join(PLACES)})$"


class ProbeTable(Table):
    """`[probe.NAME]`."""

    tool: str = "site"
    command: list[str] = []
    peer_command: list[str] = []
    where: str = Field(default="host", pattern=_PLACE)
    image: str = ""
    options: list[str] = []
    scope: Literal["rack", "node", "card"] | None = None
    values: dict[_Name, Annotated[str, Field(min_length=1)]] = {}
    deadline_s: Positive = 600.0
    silence_s: Positive | None = None
    idle_cards: bool | None = None
    nodes: int = Field(default=1, ge=1)
    skus: list[str] = []
    expects: list[str] = []
    may_skip: list[str] = []
    result: str = ""
    made_at: datetime | None = None
    max_age_s: Positive = 86400.0
    reason: str = ""

    def to_probe(self, name: str) -> Probe:
        """Return the probe, completed from its tool; raises `ValueError` with all contradictions."""
        known = tools()
        tool = known.get(self.tool)
        if tool is None:
            raise ValueError(f"tool: no tool '{self.tool}'{nearest(self.tool, known)}")
        problems = list(self._contradictions(tool))
        if problems:
            raise ValueError("; ".join(problems))
        command = tuple(self.command)
        if not command and self.tool == "compute":
            command = ("python3", "-c", compute_script())
        return Probe(
            name=name,
            tool=tool.parser,
            scope=tool.scope or Scope(self.scope or Scope.NODE),
            values=tool.units or dict(self.values),
            definitions=tool.definitions,
            shares=tool.shares,
            peer_shares=tool.peer_shares,
            least_cards=tool.least_cards,
            nodes=self.nodes,
            skus=tuple(self.skus),
            command=command,
            peer_command=tuple(self.peer_command),
            where=self.where,
            image=self.image,
            options=tuple(self.options),
            vendor=tool.vendor,
            deadline_s=self.deadline_s,
            silence_s=self.silence_s,
            idle_cards=tool.idle_cards if self.idle_cards is None else self.idle_cards,
            file_output=tool.file_output,
            status_tells=tool.status_tells,
            expects=tuple(self.expects),
            may_skip=tuple(self.may_skip),
            result=self.result,
            made_at=self.made_at,
            max_age_s=self.max_age_s,
            install=tool.install,
            program=tool.program,
            layer=tool.layer,
        )

    def _contradictions(self, tool: Tool) -> list[str]:
        found = []
        if tool.units and (self.values or self.scope):
            found.append(f"values, scope: tool '{tool.name}' has its own ({', '.join(tool.units)})")
        if not tool.units and not self.values:
            found.append('values: missing: name them with their units, values = { speed = "GB/s" }')
        if tool.name == "site" and not self.command and not self.result:
            found.append("command: missing (or a result that was made elsewhere)")
        if self.command and self.result:
            found.append("result: stands beside command: a probe is run here or was run elsewhere")
        if tool.file_output and self.command and not any("{output}" in word for word in self.command):
            found.append(f"command: {tool.name} writes its result to a file: name it {{output}}")
        return [*found, *self._misplaced()]

    def _misplaced(self) -> list[str]:
        """Return the keys that contradict the place where the probe runs."""
        found = []
        if (self.where == "container") != bool(self.image):
            found.append("image: goes with where = 'container', and that with an image")
        if self.options and self.where not in ("container", "srun"):
            found.append("options: are those of where = 'container' or 'srun'")
        if self.scope == "rack" and self.where != "here" and self.command:
            found.append("scope: of the rack as a whole speaks what runs once, where = 'here'")
        if self.where == "here" and self.peer_command:
            found.append("peer_command: needs nodes, not where = 'here'")
        if self.nodes > 1 and self.where != "host":
            found.append("nodes: more than one take part where = 'host' alone")
        return found


def unanswerable(row: Slo, probes: Mapping[str, Probe]) -> list[str]:
    """Return the reasons why a row can never have a value from its probe."""
    probe = probes.get(probe_of(row.metric))
    where, problems = f"{row.origin}: slo '{row.id}'", []
    if probe is not None and row.scope is not probe.scope:
        problems.append(f"{where}.scope: '{row.scope}', but {row.metric} is said of each {probe.scope}")
    if probe is not None and row.stage in _STAGES_WITHOUT_PROBES:
        problems.append(f"{where}.id: no probe is run in the stage {row.stage}")
    return problems
