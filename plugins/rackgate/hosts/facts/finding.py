"""A problem of a host, and the facts that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackgate.hosts.facts.fact import Fact
from rackgate.nouns.measurement import Reason
from rackgate.nouns.verdict import Verdict

_UNREAD = Fact(None, Reason.ABSENT, "it was not asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFinding:
    """A problem of a host. `step` is its triage step: module, driver, cuda, runtime, network, time.

    `at_worst` is its verdict, or the worst that it could be where something was not read.
    """

    verdict: Verdict
    text: str
    next_step: str
    at_worst: Verdict
    step: str = ""


Found = list[HostFinding]


def fail(text: str, next_step: str) -> HostFinding:
    """Return a finding that keeps the host from working."""
    return HostFinding(verdict=Verdict.FAIL, text=text, next_step=next_step, at_worst=Verdict.FAIL)


def warn(text: str, next_step: str) -> HostFinding:
    """Return a finding of degraded work."""
    return HostFinding(verdict=Verdict.WARN, text=text, next_step=next_step, at_worst=Verdict.WARN)


def unknown(text: str, next_step: str) -> HostFinding:
    """Return an unread fact that could be a failure."""
    return HostFinding(verdict=Verdict.UNKNOWN, text=text, next_step=next_step, at_worst=Verdict.FAIL)


def unsure(text: str, next_step: str) -> HostFinding:
    """Return an unread fact that could be a warning at most."""
    return HostFinding(verdict=Verdict.UNKNOWN, text=text, next_step=next_step, at_worst=Verdict.WARN)


class Facts:
    """Facts of one host by name; an unknown name is a fact without a value."""

    def __init__(self, facts: Mapping[str, Fact]) -> None:
        self._facts = facts

    def fact(self, name: str) -> Fact:
        """Return a fact with its reason."""
        return self._facts.get(name, _UNREAD)

    def __getitem__(self, name: str) -> str | None:
        return self.fact(name).value
