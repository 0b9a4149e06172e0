"""What was tested, with what and by whom: the run's first record as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackgate_reports.evidence import number_of
from rackgate_reports.formatting import clip, duration, escape, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rackgate_reports.evidence import RunEvidence


_MOST_CARDS = 600
_MOST_LOADS = 200


def facts_section(run: RunEvidence) -> str:
    """Return target, cards, engines, acceptance, software and identity of the run."""
    first = run.run
    target = _mapping(first.get("target"))
    command = escape(first.get("command_line") or "not recorded", 2000)
    return (
        f'<div class="facts">{_block("Run", _run_facts(run))}{_block("Target", _target_facts(target))}'
        f"{_block('Software', _software(first))}{_block('Acceptance', _acceptance(first))}</div>"
        f'<h3>Command</h3><pre tabindex="0"><code>{command}</code></pre>'
        f"{_overrides(first)}{_cards(target)}{_engines(run, target)}{_loads(run)}{_load_machines(run)}"
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value or () if isinstance(item, dict)] if isinstance(value, list) else []


def _block(title: str, facts: Iterable[tuple[str, str]]) -> str:
    entries = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts if value)
    return f"<section><h3>{title}</h3><dl>{entries}</dl></section>"


def _digest(value: Any) -> str:
    text = clip(value or "", 128)
    return f'<code class="digest" title="{escape(text)}">{escape(text[:12])}…</code>' if text else ""


def _run_facts(run: RunEvidence) -> list[tuple[str, str]]:
    first, end = run.run, run.end or {}
    seconds = number_of(end.get("duration_s"))
    if seconds is None and len(run.records) > 1:
        moments = [record["t_ns"] for record in run.records if isinstance(record.get("t_ns"), int)]
        seconds = (max(moments) - min(moments)) / 1e9 if moments else None
    return [
        ("Run", f"<code>{escape(first.get('run_id') or '–', 80)}</code>"),  # noqa: RUF001
        ("Profile", escape(first.get("profile") or "", 40)),
        ("Scenario", escape(first.get("scenario") or "", 60)),
        ("Began", escape(str(first.get("at") or "").replace("T", " ")[:16] + " UTC", 40)),
        ("Duration", duration(seconds)),
        ("Seed", escape(first.get("seed"), 40)),
        ("Exit status", escape(end.get("exit_status", "none: interrupted"), 40)),
        ("Continues", escape(_mapping(first.get("continues")).get("run") or "", 120)),
        ("Records", f"{len(run.records):,}"),
        ("SHA-256 of records", _digest(run.digest)),
    ]


def _target_facts(target: Mapping[str, Any]) -> list[tuple[str, str]]:
    nodes = _dicts(target.get("nodes"))
    cards = sum(len(_dicts(node.get("cards"))) for node in nodes)
    engines = plural(len(_dicts(target.get("engines"))), "engine")
    prices = _mapping(target.get("prices"))
    gateway = _mapping(target.get("gateway"))
    return [
        ("Rack", escape(target.get("name") or "not recorded", 80)),
        ("Model", escape(target.get("model") or "", 120)),
        ("Size", f"{plural(cards, 'card')} on {plural(len(nodes), 'node')}, {engines}"),
        ("Seen as", escape(target.get("vantage") or "", 40)),
        ("Gateway", escape(gateway.get("url") or _started(gateway) or "none", 200)),
        ("May break", escape(", ".join(map(str, target.get("may_break") or ())) or "nothing", 200)),
        (
            "Prices",
            escape(", ".join(f"{key} {value}" for key, value in prices.items() if value is not None), 120),
        ),
        ("File", escape(target.get("source") or "", 200)),
        ("SHA-256 of target", _digest(target.get("digest"))),
    ]


def _started(gateway: Mapping[str, Any]) -> str:
    return f"started by the run ({gateway['launcher']})" if gateway.get("launcher") else ""


def _software(first: Mapping[str, Any]) -> list[tuple[str, str]]:
    host = _mapping(first.get("host"))
    versions = _mapping(first.get("versions"))
    machine = ", ".join(
        clip(part, 80)
        for part in (host.get("node"), f"kernel {host.get('kernel')}" if host.get("kernel") else "",
                     f"{host.get('cores')} cores" if host.get("cores") else "")
        if part
    )  # fmt: skip
    return [
        ("Load machine", escape(machine, 200)),
        *((escape(name, 40), escape(version, 80)) for name, version in list(versions.items())[:24]),
    ]


def _acceptance(first: Mapping[str, Any]) -> list[tuple[str, str]]:
    acceptance = _mapping(first.get("acceptance"))
    loads = _mapping(first.get("loads"))
    overrides = acceptance.get("overrides")
    return [
        ("Files", escape(", ".join(map(str, acceptance.get("files") or ())), 300)),
        ("SHA-256", _digest(acceptance.get("digest"))),
        ("Overrides", f"{len(overrides) if isinstance(overrides, list) else 0}, each with a reason"),
        ("Loads", escape(", ".join(map(str, loads)), 300)),
        ("Waivers", "none"),
    ]


def _table(title: str, heads: Iterable[str], rows: list[str], total: int) -> str:
    if not rows:
        return ""
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    more = f'<p class="note">{total - len(rows):,} more in the records.</p>' if total > len(rows) else ""
    return (
        f'<details><summary>{title} <span>{total:,}</span></summary><div class="scroll"><table>'
        f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{more}</details>"
    )


def _line(*cells: Any) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell, 200)}</td>' for cell in cells)}</tr>"


def _overrides(first: Mapping[str, Any]) -> str:
    overrides = _dicts(_mapping(first.get("acceptance")).get("overrides"))
    rows = [
        _line(item.get("id"), ", ".join(map(str, item.get("fields") or ())), item.get("reason"))
        for item in overrides[:_MOST_CARDS]
    ]
    return _table("Overridden rows", ("SLO", "Fields", "Reason"), rows, len(overrides))


def _cards(target: Mapping[str, Any]) -> str:
    cards = [card for node in _dicts(target.get("nodes")) for card in _dicts(node.get("cards"))]
    rows = [
        _line(card.get("name"), card.get("sku"), card.get("serial"), card.get("uuid"))
        for card in cards[:_MOST_CARDS]
    ]
    return _table("Cards", ("Card", "SKU", "Serial", "UUID"), rows, len(cards))


def _engines(run: RunEvidence, target: Mapping[str, Any]) -> str:
    engines = _dicts(target.get("engines"))
    states = {str(record.get("engine")): record for record in run.of("engine")}
    rows = []
    for engine in engines[:_MOST_CARDS]:
        state = states.get(str(engine.get("name")), {})
        cold = number_of(state.get("cold_start_s"))
        told = state.get("message") or (f"first token after {duration(cold)}" if cold is not None else "")
        rows.append(
            _line(engine.get("name"), engine.get("entity"), engine.get("launcher"), engine.get("protocol"),
                  state.get("state") or "never started", told)
        )  # fmt: skip
    return _table("Engines", ("Engine", "Entity", "Launcher", "Protocol", "State", ""), rows, len(engines))


def _loads(run: RunEvidence) -> str:
    """Return what was offered, and what says whether it was measured: the instrument and the caches."""
    loads = run.of("load")
    heads = (
        "Stage",
        "Load",
        "Look",
        "Requests",
        "Errors and drops",
        "Loop lag P99",
        "Chunks that shared a read",
        "Connections opened on the way",
        "Workers",
        "From prefix caches",
        "TTFT P95 by the engines",
    )
    rows = [
        _line(
            load.get("stage"),
            f"{load.get('load')} ({load.get('label')})",
            f"{(number_of(load.get('look')) or 0) + 1:g} of at most {number_of(load.get('looks')) or 1:g}",
            _mapping(load.get("counters")).get("scheduled"),
            _not_ok(_mapping(load.get("counters"))),
            f"{lag:g} ms" if (lag := number_of(load.get("loop_lag_p99_ms"))) is not None else "not read",
            _shared(load),
            _opened(load),
            _workers(_dicts(load.get("workers"))),
            _from_caches(_mapping(load.get("prefix_cache"))),
            _by_the_engines(_mapping(load.get("server_ttft"))),
        )
        for load in loads[:_MOST_LOADS]
    ]
    return _table("Loads", heads, rows, len(loads))


def _load_machines(run: RunEvidence) -> str:
    """Return the clocks of the machines that offered loads, where it was not this one."""
    rows = [
        _line(
            load.get("stage"),
            f"{load.get('load')} ({load.get('label')})",
            clock.get("machine"),
            f"{_ms(readings[0].get('offset_ns')):+.3f} ms",
            f"{max(_ms(one.get('uncertainty_ns')) for one in readings):.3f} ms",
            f"{_ms(readings[-1].get('offset_ns')) - _ms(readings[0].get('offset_ns')):+.3f} ms",
        )
        for load in run.of("load")
        for clock in _dicts(load.get("clocks"))
        if (readings := _dicts(clock.get("readings")))
    ]
    heads = ("Stage", "Load", "Load machine", "Clock against this one", "Known to", "Drift")
    return _table("Load machines", heads, rows[:_MOST_LOADS], len(rows)) if rows else ""


def _ms(value: object) -> float:
    return (number_of(value) or 0.0) / 1e6


def _not_ok(counters: Mapping[str, Any]) -> str:
    outcomes = {**_mapping(counters.get("outcomes")), "dropped": counters.get("dropped")}
    return (
        ", ".join(f"{count} {name}" for name, count in outcomes.items() if count and name != "ok") or "none"
    )


def _workers(workers: Sequence[Mapping[str, Any]]) -> str:
    """Return how many processes offered a load, and the CPU and the schedule lag (P99) of each."""
    parts = [
        f"{number_of(one.get('cpu_s')) or 0.0:.2g} s CPU"
        + (f", {lag:.2g} ms late" if (lag := number_of(one.get("schedule_lag_p99_ms"))) is not None else "")
        for one in workers
    ]
    return f"{len(parts)}: {'; '.join(parts)}" if parts else "not recorded"


def _shared(load: Mapping[str, Any]) -> str:
    """Return how many chunks came in one read with another one, whose arrival they share."""
    chunks, shared = number_of(load.get("chunks")), number_of(load.get("shared_chunks"))
    if not chunks or shared is None:
        return "not recorded" if chunks is None else "no chunk"
    return f"{shared / chunks:.1%} of {chunks:,.0f}"


def _opened(load: Mapping[str, Any]) -> str:
    """Return how many requests waited for a connection of their own, and how long."""
    opened, wait_ms = number_of(load.get("opened")), number_of(load.get("connect_p99_ms"))
    if not opened:
        return "not recorded" if opened is None else "none"
    return f"{opened:g}" if wait_ms is None else f"{opened:g}, P99 {wait_ms:.3g} ms"


def _from_caches(engines: Mapping[str, Any]) -> str:
    """Return how much of the looked up prompt tokens was found, over all engines that tell."""
    counted = [_mapping(one) for one in engines.values()]
    queries = sum(number_of(one.get("queries")) or 0.0 for one in counted)
    hits = sum(number_of(one.get("hits")) or 0.0 for one in counted)
    if not counted:
        return "no engine told"
    share = f"{hits / queries:.1%} of {queries:,.0f} tokens" if queries else "nothing looked up"
    return f"{share} ({plural(len(counted), 'engine')})"


def _by_the_engines(engines: Mapping[str, Any]) -> str:
    """Return the bucket of each engine's own histogram that holds its P95, the slowest engine's first."""
    found = [bounds for one in engines.values() if (bounds := _bucket(_mapping(one), 0.95)) is not None]
    if not found:
        return "no engine told"
    low, high = max(found)
    return f"{low * 1e3:g} to {high * 1e3:g} ms at most ({plural(len(found), 'engine')})"


def _bucket(histogram: Mapping[str, Any], share: float) -> tuple[float, float] | None:
    edges = [number_of(edge) for edge in histogram.get("edges_s") or ()]
    counts = [number_of(count) or 0.0 for count in histogram.get("counts") or ()]
    if not counts or len(counts) != len(edges) or counts[-1] <= 0:
        return None
    place = next(place for place, count in enumerate(counts) if count >= share * counts[-1])
    low, high = (edges[place - 1] if place else 0.0), edges[place]
    return None if low is None or high is None else (low, high)
