"""What was tested, with what and by whom: the target, the software and the acceptance of the first record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackgate_reports.evidence import RunEvidence, mapping, mappings, number_of
from rackgate_reports.formatting import clip, duration, plural

_MOST_ROWS = 600
_MOST_NODES = 12
_MOST_VERSIONS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Facts of a run as text."""

    duration_s: float | None
    rack_size: str
    gateway: str
    may_break: str
    prices: str
    load_machine: str
    versions: Mapping[str, Any]
    acceptance_files: str
    acceptance_digest: str
    override_count: int
    loads: str
    nodes_with_facts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text cells, the first of `total`."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """What the nodes say of one fact; `usual` is None without a majority, `others` are value and nodes."""

    name: str
    usual: str | None
    others: tuple[tuple[str, str], ...]
    unread: str
    rank: int


def provenance_of(run: RunEvidence) -> Provenance:
    """Return the facts of the run's first and last record."""
    host, prices = mapping(run.run.get("host")), mapping(run.target.get("prices"))
    cards, nodes = plural(len(run.cards), "card"), plural(len(run.nodes), "node")
    kernel = f"kernel {host.get('kernel')}" if host.get("kernel") else ""
    cores = f"{host.get('cores')} cores" if host.get("cores") else ""
    acceptance = mapping(run.run.get("acceptance"))
    return Provenance(
        duration_s=_duration_s(run),
        rack_size=f"{cards} on {nodes}, {plural(len(run.engines), 'engine')}",
        gateway=_gateway(run),
        may_break=", ".join(map(str, run.target.get("may_break") or ())) or "nothing",
        prices=", ".join(f"{key} {value}" for key, value in prices.items() if value is not None),
        load_machine=", ".join(clip(part, 80) for part in (host.get("node"), kernel, cores) if part),
        versions=dict(list(mapping(run.run.get("versions")).items())[:_MOST_VERSIONS]),
        acceptance_files=", ".join(map(str, acceptance.get("files") or ())),
        acceptance_digest=str(acceptance.get("digest") or ""),
        override_count=len(mappings(acceptance.get("overrides"))),
        loads=", ".join(mapping(run.run.get("loads"))),
        nodes_with_facts=len({str(record.get("node")) for record in run.of("facts")}),
    )


def _duration_s(run: RunEvidence) -> float | None:
    """Return the duration of the end record, or of an interrupted run the span of its records."""
    seconds = number_of((run.end or {}).get("duration_s"))
    if seconds is None and len(run.records) > 1:
        moments = [record["t_ns"] for record in run.records if isinstance(record.get("t_ns"), int)]
        seconds = (max(moments) - min(moments)) / 1e9 if moments else None
    return seconds


def _gateway(run: RunEvidence) -> str:
    gateway = mapping(run.target.get("gateway"))
    started = f"started by the run ({gateway['launcher']})" if gateway.get("launcher") else "none"
    return str(gateway.get("url") or started)


def target_tables(run: RunEvidence) -> tuple[Table, ...]:
    """Return the overridden SLOs, the cards and the engines."""
    overrides = mappings(mapping(run.run.get("acceptance")).get("overrides"))
    states = {str(record.get("engine")): record for record in run.of("engine")}
    return (
        Table(
            title="Overridden rows",
            heads=("SLO", "Fields", "Reason"),
            rows=tuple(
                (row.get("id"), ", ".join(map(str, row.get("fields") or ())), row.get("reason"))
                for row in overrides[:_MOST_ROWS]
            ),
            total=len(overrides),
        ),
        Table(
            title="Cards",
            heads=("Card", "SKU", "Serial", "UUID"),
            rows=tuple(
                tuple(card.get(name) for name in ("name", "sku", "serial", "uuid"))
                for card in run.cards[:_MOST_ROWS]
            ),
            total=len(run.cards),
        ),
        Table(
            title="Engines",
            heads=("Engine", "Entity", "Launcher", "Protocol", "State", ""),
            rows=tuple(
                (
                    *(engine.get(name) for name in ("name", "entity", "launcher", "protocol")),
                    *_engine_state(states.get(str(engine.get("name")), {})),
                )
                for engine in run.engines[:_MOST_ROWS]
            ),
            total=len(run.engines),
        ),
    )


def _engine_state(record: Mapping[str, Any]) -> tuple[Any, Any]:
    cold_s = number_of(record.get("cold_start_s"))
    started = "" if cold_s is None else f"first token after {duration(cold_s)}"
    return record.get("state") or "never started", record.get("message") or started


def compare_node_facts(run: RunEvidence) -> list[NodeFact]:
    """Compare the latest facts of the nodes: facts that differ come first, then facts not read everywhere."""
    nodes = {str(record.get("node")): record.get("facts") or {} for record in run.of("facts")}
    names = dict.fromkeys(name for facts in nodes.values() for name in facts)
    compared = [
        _compare(name, {node: facts.get(name) or {} for node, facts in nodes.items()}) for name in names
    ]
    return sorted(compared, key=lambda fact: fact.rank)


def _compare(name: str, fact_by_node: Mapping[str, Mapping[str, object]]) -> NodeFact:
    nodes_by_value: dict[str, list[str]] = {}
    unread: list[str] = []
    for node, fact in fact_by_node.items():
        value = fact.get("value")
        (unread if value is None else nodes_by_value.setdefault(str(value), [])).append(node)
    by_count = sorted(nodes_by_value.items(), key=lambda item: -len(item[1]))
    majority = bool(by_count) and 2 * len(by_count[0][1]) > len(fact_by_node) - len(unread)
    return NodeFact(
        name=name,
        usual=by_count[0][0] if majority else None,
        others=tuple((value, _names(nodes)) for value, nodes in by_count[majority:]),
        unread=_names(unread),
        rank=0 if len(by_count) > 1 else 1 if unread and by_count else 2,
    )


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return ", ".join(nodes[:_MOST_NODES]) + more
