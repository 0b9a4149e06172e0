"""Rates and shares of requests: errors, throughput, goodput, balance and scaling."""

from __future__ import annotations

import numpy as np

from rackgate.loadgen.results.measurement_quality import token_count_caveat
from rackgate.metrics.metric import Register
from rackgate.metrics.observation import Observation
from rackgate.metrics.requests.chosen import (
    Chosen,
    chosen_samples,
    good_mask,
    last_label,
    outcome_counts,
    owners,
    steady_windows,
)
from rackgate.nouns.entities import pair_name, pairs_of
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Measurement, Reason, missing
from rackgate.nouns.sample import FAILED, Outcome
from rackgate.nouns.slo import ONE_VALUE, Slo
from rackgate.statistics.percentiles import nearest_rank
from rackgate.statistics.proportions import proportion_bounds
from rackgate.statistics.ratios import balance, scaling_efficiency, throughput_per_s


def error_rate(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Not ok / attempted; refused, cut, empty and in-stream errors count, nothing is retried behind it."""
    chosen = chosen_samples(observation, slo, entity, timed=False)
    if chosen.table is None:
        return _none(chosen, slo, entity)
    counts = outcome_counts(chosen.table)
    attempted = len(chosen.table) - counts.get(Outcome.CANCELLED, 0)
    if attempted < len(chosen.table) / 2 or not attempted:
        text = f"only {attempted} of {len(chosen.table)} requests came to an end"
        return missing(slo.metric, entity, slo.unit, Reason.TOO_FEW, text)
    failures = {kind: count for kind, count in counts.items() if kind in FAILED}
    failed = sum(failures.values())
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=failed / attempted,
        unit=slo.unit,
        count=attempted,
        bounds=proportion_bounds(failed, attempted),
        detail=", ".join(
            [
                *(f"{count} {kind}" for kind, count in failures.items()),
                *filter(None, [chosen.remark]),
            ]
        ),
    )


def output_token_throughput(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Server-counted output tokens of ok requests that ended in the steady window / its length.

    Where a server counts none its chunks are counted in their place, which the detail says.
    """
    return _throughput(observation, slo, entity, tokens=True)


def request_throughput(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Ok requests that ended in the steady window / its length."""
    return _throughput(observation, slo, entity, tokens=False)


def offered_share(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Requests that were ok / requests that the schedule asked for; dropped ones count against it."""
    chosen = chosen_samples(observation, slo, entity, timed=False)
    if chosen.table is None:
        return _none(chosen, slo, entity)
    counts = outcome_counts(chosen.table)
    asked = len(chosen.table) - counts.get(Outcome.CANCELLED, 0)
    if not asked:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "nothing was scheduled")
    value = counts.get(Outcome.OK, 0) / asked
    dropped = counts.get(Outcome.DROPPED, 0)
    return _value(slo, entity, value, asked, f"{dropped} dropped at the concurrency cap")


def goodput(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Requests that were ok and inside every per-request bound of the load / attempted ones."""
    chosen = chosen_samples(observation, slo, entity)
    if chosen.table is None:
        return _none(chosen, slo, entity)
    load = chosen.looks[-1].load
    bounds = _bounds_of(load)
    if not bounds:
        text = f"load '{load.name}' has none of ttft_bound_ms, tpot_bound_ms, e2e_bound_ms"
        return missing(slo.metric, entity, slo.unit, Reason.NOT_CONFIGURED, text)
    cancelled = outcome_counts(chosen.table).get(Outcome.CANCELLED, 0)
    attempted = len(chosen.table) - cancelled
    if not attempted:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "nothing was attempted")
    good = int(good_mask(chosen.table, load).sum())
    return Measurement(
        metric=slo.metric, entity=entity, value=good / attempted, unit=slo.unit, count=attempted,
        bounds=proportion_bounds(good, attempted), detail=", ".join(bounds),
    )  # fmt: skip


def goodput_per_s(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Good requests (see goodput) that ended in the steady window / its length."""
    chosen = chosen_samples(observation, slo, entity, one_axis=True)
    share = goodput(observation, slo, entity)
    if share.value is None:
        return share
    if chosen.table is None:
        return _none(chosen, slo, entity)
    good, rate = good_mask(chosen.table, chosen.looks[-1].load), 0.0
    done = np.asarray(chosen.table.column("done_ns"), dtype=float)
    for windows, mask in steady_windows(chosen.table):
        seconds = sum(end - start for start, end in windows) / 1e9
        ended = sum(int((good & mask & (done > start) & (done <= end)).sum()) for start, end in windows)
        rate += ended / seconds if seconds > 0 else 0.0
    return _value(slo, entity, rate, share.count, share.detail)


def _bounds_of(load: Load) -> list[str]:
    """Return the per-request bounds of a load as people read them."""
    return [
        f"{name.split('_')[0].upper()} <= {bound:g} ms"
        for name in ("ttft_bound_ms", "tpot_bound_ms", "e2e_bound_ms")
        if (bound := getattr(load, name)) is not None
    ]


def balance_ratio(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Max / mean of ok requests per card: over the two cards of a pair, or over the rack's nodes."""
    label = "both" if entity != "rack" else None
    chosen = chosen_samples(observation, slo, entity, label=label, one_axis=entity != "rack")
    if chosen.table is None:
        return _none(chosen, slo, entity)
    table = chosen.table.where(chosen.table.labels("outcome").isin((Outcome.OK,)))
    served = owners(table)
    if entity == "rack" and served.isin(("",)).all():
        text = "no answer says who served it: the gateway sends no served-by header"
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, text)
    groups = _groups(observation, entity)
    # Without a common window a slow card would still reach its share of a fixed number of requests.
    done = np.asarray(table.column("done_ns"), dtype=float)
    ends = [done[served.isin(members)].max(initial=0.0) for members in groups.values()]
    inside = done <= min(ends, default=0.0) if entity != "rack" else np.ones(len(done), dtype=bool)
    shares = [float(served[inside].isin(members).sum()) / len(members) for members in groups.values()]
    spread = balance(shares)
    if spread is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "nothing was served")
    parts = ", ".join(f"{name} {share:.0f}" for name, share in zip(groups, shares, strict=True))
    detail = f"requests per card: {parts}; coefficient of variation {spread.coefficient_of_variation:.2f}"
    return _value(slo, entity, spread.max_over_mean, int(inside.sum()), detail)


def scaling(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """Token throughput of both cards together / the sum of each alone, same load per card."""
    both = output_token_throughput_of(observation, slo, entity, "both")
    if both.value is None:
        return both
    alone = []
    for card in _pair(observation, entity):
        one = output_token_throughput_of(observation, slo, card, "alone")
        if one.value is None:
            return missing(
                slo.metric, entity, slo.unit, one.reason or Reason.ABSENT, f"{card} alone: {one.detail}"
            )
        alone.append(one.value)
    value = scaling_efficiency(both.value, np.array(alone))
    if value is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "a card alone gave no tokens")
    each = " + ".join(f"{rate:.0f}" for rate in alone)
    return _value(slo, entity, value, both.count, f"{both.value:.0f} tok/s together, {each} tok/s alone")


def tpot_ratio(observation: Observation, slo: Slo, entity: str) -> Measurement:
    """TPOT P50 of the worse card with both busy / the same card alone."""
    worst, count, detail = 0.0, 0, ""
    for card in _pair(observation, entity):
        middles = []
        for label in ("alone", "both"):
            chosen = chosen_samples(observation, slo, card, label=label)
            if chosen.table is None:
                return _none(chosen, slo, entity)
            values = np.asarray(chosen.table.column("tpot_ms"), dtype=float)
            middles.append(nearest_rank(values[~np.isnan(values)], 0.5))
            count += len(values)
        if not middles[0] or not middles[1]:
            return missing(slo.metric, entity, slo.unit, Reason.ABSENT, f"{card} has no TPOT")
        if middles[1] / middles[0] > worst:
            worst = middles[1] / middles[0]
            detail = f"{card}: {middles[1]:.2f} ms with both busy, {middles[0]:.2f} ms alone"
    if not worst:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, f"no pair {entity}")
    return _value(slo, entity, worst, count, detail)


def output_token_throughput_of(observation: Observation, slo: Slo, entity: str, label: str) -> Measurement:
    """Token throughput of the offer with this label alone."""
    return _throughput(observation, slo, entity, tokens=True, label=label)


def _throughput(
    observation: Observation, slo: Slo, entity: str, *, tokens: bool, label: str | None = None
) -> Measurement:
    label = label or last_label(observation, slo)
    chosen = chosen_samples(observation, slo, entity, label=label, one_axis=True)
    if chosen.table is None:
        return _none(chosen, slo, entity)
    table = chosen.table
    ok = table.labels("outcome").isin((Outcome.OK,))
    amounts = (
        np.nan_to_num(np.asarray(table.column("output_tokens"), dtype=float))
        if tokens
        else np.ones(len(table))
    )
    rate, longest_s = 0.0, 0.0
    for windows, mask in steady_windows(table):
        mine = np.flatnonzero(mask & ok)
        done, amount = np.asarray(table.column("done_ns"), dtype=float)[mine], amounts[mine]
        total, seconds = 0.0, sum(end - start for start, end in windows) / 1e9
        for start, end in windows:
            part = throughput_per_s(done, amount, start_ns=start, end_ns=end)
            total += (part or 0.0) * (end - start) / 1e9
        rate += total / seconds if seconds > 0 else 0.0
        longest_s = max(longest_s, seconds)
    if not longest_s:
        return missing(slo.metric, entity, slo.unit, Reason.TOO_FEW, "the steady window is empty")
    detail = f"{int(ok.sum())} ok requests, steady window {longest_s:.1f} s"
    if tokens:
        detail = "; ".join(filter(None, (detail, token_count_caveat(table))))
    return _value(slo, entity, rate, len(table), detail)


def _groups(observation: Observation, entity: str) -> dict[str, frozenset[str]]:
    if entity == "rack":
        nodes = {node.name: observation.members(node.name) for node in observation.target.nodes}
        return {name: members for name, members in nodes.items() if members}
    return {card: frozenset({card}) for card in _pair(observation, entity)}


def _pair(observation: Observation, entity: str) -> tuple[str, ...]:
    for first, second in pairs_of(observation.target):
        if pair_name(first, second) == entity:
            return (first.entity, second.entity)
    return ()


def _none(chosen: Chosen, slo: Slo, entity: str) -> Measurement:
    why = chosen.why
    if why is None:
        return missing(slo.metric, entity, slo.unit, Reason.ABSENT, "no samples")
    return missing(slo.metric, entity, slo.unit, why.reason or Reason.ABSENT, why.detail)


def _value(slo: Slo, entity: str, value: float, count: int, detail: str) -> Measurement:
    return Measurement(
        metric=slo.metric,
        entity=entity,
        value=value,
        unit=slo.unit,
        count=count,
        detail=detail,
        source=f"load {slo.load}" if slo.quantile is None else "",
    )


def register_metrics(register: Register) -> None:
    """Register every metric of this module."""
    register("error_rate", "ratio", error_rate, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register(
        "output_token_throughput",
        "tok/s",
        output_token_throughput,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
    )
    register(
        "request_throughput",
        "1/s",
        request_throughput,
        statistics=ONE_VALUE,
        windows=("load",),
        needs_load=True,
    )
    register(
        "offered_share", "ratio", offered_share, statistics=ONE_VALUE, windows=("load",), needs_load=True
    )
    register("goodput", "ratio", goodput, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register("goodput_per_s", "1/s", goodput_per_s, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register(
        "balance_ratio", "ratio", balance_ratio, statistics=ONE_VALUE, windows=("load",), needs_load=True
    )
    register("scaling_efficiency", "ratio", scaling, statistics=ONE_VALUE, windows=("load",), needs_load=True)
    register("tpot_ratio", "ratio", tpot_ratio, statistics=ONE_VALUE, windows=("load",), needs_load=True)
