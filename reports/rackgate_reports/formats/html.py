"""The HTML report: one self-contained file that makes no request, below 4 MB however long the run was.

The templates are in `page/templates`; `_clip` cuts and escapes every value in them, also without a filter.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rackgate_reports.charts.inline import counts_bar, value_against_limit
from rackgate_reports.charts.percentiles import PercentileChart, percentile_chart
from rackgate_reports.charts.svg import COLOURS
from rackgate_reports.charts.timeline import timeline_of
from rackgate_reports.digest.checks import (
    STATUSES,
    CheckRow,
    check_rows,
    counts_of,
    counts_text,
    worst_rows,
)
from rackgate_reports.digest.latency import Latencies, engines_quarantined_before, latencies_by_load
from rackgate_reports.digest.load_quality import load_tables
from rackgate_reports.digest.numbers import economy, five_numbers
from rackgate_reports.digest.overview import (
    GRADES,
    definitions_of,
    endurance_of,
    gates_of,
    grade_title_and_worth,
    headline_of,
    stages_of,
)
from rackgate_reports.digest.provenance import compare_node_facts, provenance_of, target_tables
from rackgate_reports.digest.unmet import LAYERS, repeat_command, unmet_entities, unmet_slos
from rackgate_reports.evidence import RunEvidence, mapping, number_of
from rackgate_reports.formatting import (
    clip,
    count,
    duration,
    first_upper,
    margin,
    metric_name,
    plural,
    stage_name,
)

_MOST_CHECKS = 5000
_MOST_CHARTS = 24


def render_html(run: RunEvidence) -> str:
    """Return the whole document."""
    rows = check_rows(run)
    shown_rows = worst_rows(rows, _MOST_CHECKS)
    headline, unmet, loads = headline_of(run, rows), unmet_slos(run, rows), latencies_by_load(run)
    grade_title, grade_worth = grade_title_and_worth(run)
    colours = _colours(run, loads)
    suspects = tuple(dict.fromkeys(str(gate["entity"]) for gate in run.of("gate") if gate.get("entity")))
    page = resources.files("rackgate_reports").joinpath("page")
    rack = run.target.get("name") or "rack"
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"{'' if run.grade == 'accelerator' else f'{grade_title} · '}{headline.word}: {rack}",
            style=Markup(page.joinpath("style.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
            script=Markup(page.joinpath("script.js").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
            run=run,
            began=_began(run),
            duration_s=number_of((run.end or {}).get("duration_s")),
            headline=headline,
            grade_title=grade_title,
            grade_worth=grade_worth,
            counts=counts_of(rows),
            stages=stages_of(run, rows),
            unmet=unmet,
            unmet_entities=unmet_entities(unmet),
            repeat_command=repeat_command(run),
            gates=gates_of(run, rows),
            excluded=run.run.get("excluded") or [],
            five_numbers=five_numbers(run),
            endurance=endurance_of(run),
            economy=economy(run),
            percentile_charts=_percentile_charts(run, rows, loads, colours),
            undrawn_loads=len(loads) - _MOST_CHARTS,
            timeline=timeline_of(run, loads, colours, suspects),
            rows=rows,
            shown_rows=shown_rows,
            shown_counts=counts_of(shown_rows),
            left_out_counts=Counter(counts_of(rows)) - Counter(counts_of(shown_rows)),
            provenance=provenance_of(run),
            tables=(*target_tables(run), *load_tables(run)),
            node_facts=compare_node_facts(run),
            definitions=definitions_of(run),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rackgate_reports", "page/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clip,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters.update(
        clip=_clip,
        count=count,
        counts_text=counts_text,
        csp_hash=_csp_hash,
        definition_id=_definition_id,
        duration=duration,
        first_upper=first_upper,
        mapping=mapping,
        margin=margin,
        metric_name=metric_name,
        plural=plural,
        stage_name=stage_name,
    )
    environment.globals.update(
        GRADES=GRADES,
        LAYERS=LAYERS,
        STATUSES=STATUSES,
        counts_bar=counts_bar,
        value_against_limit=value_against_limit,
    )
    return environment


def _clip(text: object, limit_characters: int = 400) -> Markup:
    """Return text cut, printable and escaped; markup stays as it is."""
    return text if isinstance(text, Markup) else escape(clip(text, limit_characters))


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _definition_id(metric: str) -> str:
    return "def-" + "".join(letter if letter.isalnum() else "-" for letter in metric)[:60]


def _began(run: RunEvidence) -> str:
    at = str(run.run.get("at") or "")
    return f"{at[:10]} {at[11:16]} UTC" if len(at) >= 16 else "date not recorded"


def _colours(run: RunEvidence, loads: Sequence[Latencies]) -> dict[str, int]:
    """Return the colour of every card and engine."""
    cards = [str(card.get("name")) for card in run.cards]
    names = dict.fromkeys([*cards, *(name for load in loads for name in load.engines)])
    return {name: index % COLOURS for index, name in enumerate(names)}


def _percentile_charts(
    run: RunEvidence, rows: Sequence[CheckRow], loads: Sequence[Latencies], colours: Mapping[str, int]
) -> list[PercentileChart]:
    limits: dict[tuple[str, str], list[CheckRow]] = {}
    for row in rows:
        if row.metric == "ttft_ms":
            limits.setdefault((row.stage, row.load), []).append(row)
    return [
        percentile_chart(
            load.without(engines_quarantined_before(run, load.stage)),
            limits.get((load.stage, load.load), []),
            colours,
        )
        for load in loads[:_MOST_CHARTS]
    ]
