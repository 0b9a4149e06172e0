"""`rack.toml` -> `Target`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rackgate import target as nouns
from rackgate.config.problems import ConfigError, nearest, problems_of, read_toml

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CheckSettings", "TargetFile", "endpoint_target", "load_target", "parse_target"]

CheckSettings = Callable[[Mapping[str, object]], list[str]]
"""Returns what is wrong with a launcher's own table."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://HOST[:PORT] or https://HOST[:PORT]")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or a password: name the variable in api_key_env")
    return value.rstrip("/")


Url = Annotated[str, AfterValidator(_http_url)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class About(_Table):
    """`[target]`: the rack's name, the model asked for, what the tester sees and may break.

    `simulated` says that the engines are no real ones: the evidence is then graded so.
    """

    name: Name
    model: str = Field(min_length=1)
    vantage: Literal["operator", "tenant", "endpoint"] = "operator"
    may_break: list[Literal["engine"]] = []
    simulated: bool = False


class CardTable(_Table):
    """`[[node.card]]`."""

    index: int = Field(ge=0)
    uuid: str | None = None
    serial: str | None = None
    sku: str | None = None


class NodeTable(_Table):
    """`[[node]]`: `cards = N`, or one `[[node.card]]` each where serials are known."""

    name: Name
    cards: int = Field(default=0, ge=0)
    sku: str | None = None
    card: list[CardTable] = []
    exporter: Url | None = None


class EngineTable(_Table):
    """`[[engine]]`: what serves, on which cards, and how it is started or found."""

    name: Name
    launcher: str
    model: str | None = None
    protocol: Literal["openai", "triton"] = "openai"
    pool: Name = "gpu"
    url: Url | None = None
    api_key_env: str | None = None
    cards: list[str] = []
    settings: dict[str, Any] = {}


class GatewayTable(_Table):
    """`[gateway]`: the address users call."""

    url: Url
    api_key_env: str | None = None
    served_by_header: str = "x-served-by"


class BatchTable(_Table):
    """`[batch]`: the command that runs a JSONL batch."""

    command: list[str] = Field(min_length=1)


class PricesTable(_Table):
    """`[prices]`."""

    currency: str
    card_hour: NonNegative | None = None
    kwh: NonNegative | None = None


class TargetFile(_Table):
    """The whole file."""

    target: About
    node: list[NodeTable] = []
    engine: list[EngineTable] = Field(min_length=1)
    gateway: GatewayTable | None = None
    batch: BatchTable | None = None
    prices: PricesTable | None = None


def load_target(path: Path, launchers: Mapping[str, CheckSettings]) -> nouns.Target:
    """Return the target of a file; raises `ConfigError` with all its problems."""
    return parse_target(read_toml(path), str(path), launchers)


def parse_target(data: Mapping[str, Any], file: str, launchers: Mapping[str, CheckSettings]) -> nouns.Target:
    """Return the target of parsed TOML; raises `ConfigError` with all its problems."""
    try:
        parsed = TargetFile.model_validate(data)
    except ValidationError as error:
        raise ConfigError(problems_of(error, TargetFile, file)) from error
    nodes = tuple(_node(table) for table in parsed.node)
    problems = [f"{file}: {problem}" for problem in _contradictions(parsed, nodes, launchers)]
    if problems:
        raise ConfigError(problems)
    engines = tuple(_engine(table, parsed.target.model) for table in parsed.engine)
    return nouns.Target(
        name=parsed.target.name,
        model=parsed.target.model,
        grade=_grade(parsed.target, engines),
        nodes=nodes,
        engines=engines,
        gateway=nouns.Gateway(**parsed.gateway.model_dump()) if parsed.gateway else None,
        batch=nouns.BatchSystem(command=tuple(parsed.batch.command)) if parsed.batch else None,
        prices=nouns.Prices(**parsed.prices.model_dump()) if parsed.prices else None,
        vantage=parsed.target.vantage,
        may_break=tuple(parsed.target.may_break),
        source=file,
    )


def endpoint_target(url: str, model: str, *, source: str) -> nouns.Target:
    """Return a target that is one running endpoint, seen from outside."""
    spec = nouns.EngineSpec(name="endpoint", launcher="remote", model=model, url=_http_url(url), pool="gpu")
    return nouns.Target(
        name=urlsplit(url).hostname or "endpoint",
        model=model,
        grade="accelerator",
        engines=(spec,),
        vantage="endpoint",
        source=source,
    )


def _grade(about: About, engines: tuple[nouns.EngineSpec, ...]) -> str:
    if about.simulated:
        return "simulated"
    return "cpu" if all(engine.pool == "cpu" for engine in engines) else "accelerator"


def _node(table: NodeTable) -> nouns.Node:
    cards = table.card or [CardTable(index=index) for index in range(table.cards)]
    return nouns.Node(
        name=table.name,
        exporter_url=table.exporter,
        cards=tuple(
            nouns.Card(
                name=f"{table.name}/gpu{card.index}",
                node=table.name,
                index=card.index,
                uuid=card.uuid,
                serial=card.serial,
                sku=card.sku or table.sku,
            )
            for card in cards
        ),
    )


def _engine(table: EngineTable, model: str) -> nouns.EngineSpec:
    by_node: dict[str, list[str]] = {}
    for card in table.cards:
        by_node.setdefault(card.split("/")[0], []).append(card)
    return nouns.EngineSpec(
        name=table.name,
        launcher=table.launcher,
        model=table.model or model,
        protocol=table.protocol,
        pool=table.pool,
        url=table.url,
        api_key_env=table.api_key_env,
        members=tuple(nouns.Member(node=node, cards=tuple(cards)) for node, cards in by_node.items()),
        settings=table.settings,
    )


def _contradictions(
    parsed: TargetFile, nodes: tuple[nouns.Node, ...], launchers: Mapping[str, CheckSettings]
) -> list[str]:
    problems = _twice("node", [node.name for node in parsed.node])
    problems += _twice("engine", [engine.name for engine in parsed.engine])
    cards = {card.name for node in nodes for card in node.cards}
    for table in parsed.node:
        problems += _twice(f"node {table.name}: card", [str(card.index) for card in table.card])
        if table.card and table.cards not in (0, len(table.card)):
            problems.append(f"node {table.name}: cards = {table.cards} but {len(table.card)} [[node.card]]")
    taken: dict[str, str] = {}
    for index, engine in enumerate(parsed.engine):
        where = f"engine[{index}]"
        for card in engine.cards:
            if card not in cards:
                problems.append(f"{where}.cards: no card '{card}'{nearest(card, cards)}")
            elif card in taken:
                problems.append(f"{where}.cards: {card} is already taken by engine {taken[card]}")
            taken.setdefault(card, engine.name)
        if engine.launcher not in launchers:
            problems.append(
                f"{where}.launcher: no launcher '{engine.launcher}'{nearest(engine.launcher, launchers)}"
            )
        else:
            problems += [f"{where}.settings: {text}" for text in launchers[engine.launcher](engine.settings)]
        if engine.launcher == "remote" and engine.url is None:
            problems.append(f"{where}.url: missing (launcher 'remote' needs it)")
    return problems


def _twice(what: str, names: list[str]) -> list[str]:
    return [f"{what} '{name}' is declared twice" for name in dict.fromkeys(names) if names.count(name) > 1]
