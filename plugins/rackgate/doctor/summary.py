"""Summary of forecasts: equal forecasts in groups, and cures ranked by the checks that they bring back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rackgate.doctor.forecast import Forecast, Outlook
from rackgate.nouns.slo import STAGES

_ORDER = (Outlook.FAIL, Outlook.UNKNOWN, Outlook.WARN, Outlook.RUN, Outlook.ABSENT, Outlook.UNSEEN)
_BAD = (Outlook.UNKNOWN, Outlook.FAIL)
_NOT_ASKED = (Outlook.ABSENT, Outlook.UNSEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastGroup:
    """Rows of one stage with the same forecast for the same entities.

    `scope` is the kind of the entities; `whole` means that the rows have no entity with another forecast.
    """

    stage: str
    outlook: Outlook
    rows: tuple[str, ...]
    scope: str
    entities: tuple[str, ...]
    whole: bool
    because: str
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCure:
    """A cure with the rows, entities and number of checks that it brings back."""

    text: str
    rows: tuple[str, ...]
    checks: int
    entities: tuple[str, ...]


def grouped(forecasts: Iterable[Forecast]) -> tuple[ForecastGroup, ...]:
    """Return groups of equal forecasts, stage by stage, the bad ones of a stage first."""
    per_row: dict[str, dict[tuple[Outlook, str, str], list[Forecast]]] = {}
    for forecast in forecasts:
        # Entities of a row with the same cure, or that are not asked, share the first reason.
        because = "" if forecast.cure or forecast.outlook in _NOT_ASKED else forecast.because
        alike = per_row.setdefault(forecast.check.slo.id, {})
        alike.setdefault((forecast.outlook, because, forecast.cure), []).append(forecast)
    merged: dict[tuple[object, ...], list[list[Forecast]]] = {}
    for alike in per_row.values():
        for key, members in alike.items():
            slo = members[0].check.slo
            if key[0] in _NOT_ASKED:
                entities: tuple[str, ...] = (members[0].because,)
            else:
                entities = (slo.scope, *(one.check.entity for one in members))
            merged.setdefault((slo.stage, *key, *entities, len(alike) == 1), []).append(members)
    made = [_group(rows, whole=bool(key[-1])) for key, rows in merged.items()]
    return tuple(sorted(made, key=lambda group: (STAGES.index(group.stage), _ORDER.index(group.outlook))))


def _group(rows: list[list[Forecast]], *, whole: bool) -> ForecastGroup:
    first = rows[0][0]
    return ForecastGroup(
        stage=first.check.slo.stage,
        outlook=first.outlook,
        rows=tuple(members[0].check.slo.id for members in rows),
        scope=first.check.slo.scope,
        entities=tuple(one.check.entity for one in rows[0]),
        whole=whole,
        because=first.because,
        cure=first.cure,
    )


def ranked_cures(forecasts: Iterable[Forecast]) -> tuple[RankedCure, ...]:
    """Return the cures, the one that brings back most checks first."""
    by_text: dict[str, list[Forecast]] = {}
    for forecast in forecasts:
        if forecast.outlook in _BAD and forecast.cure:
            by_text.setdefault(forecast.cure, []).append(forecast)
    listed = [
        RankedCure(
            text=text,
            rows=tuple(dict.fromkeys(one.check.slo.id for one in members)),
            checks=len(members),
            entities=tuple(dict.fromkeys(one.check.entity for one in members)),
        )
        for text, members in by_text.items()
    ]
    return tuple(sorted(listed, key=lambda cure: -cure.checks))
