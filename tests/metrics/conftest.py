"""Requests on paper, as one finished load of one engine that a metric can be asked about."""

import pytest

from rackgate.loadgen.results.offered_load import Counters, OfferedLoad
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.nouns.load import Load, Origin
from rackgate.nouns.node import Card, Node
from rackgate.nouns.sample import Outcome, Sample
from rackgate.nouns.slo import Check, Op, Scope, Slo
from rackgate.nouns.target import EngineSpec, Member, Target

CARDS = ("node1/gpu0", "node1/gpu1")
CARD = CARDS[0]
SECOND = 1_000_000_000
MILLISECOND = 1_000_000


@pytest.fixture
def request_of():
    """Make one request that was due in second `number`; it failed if it has no `ttft_ms`."""

    def request_of(number, *, ttft_ms=None, e2e_ms=None, output_tokens=10, engine=CARD, lag_ms=0):
        due = number * SECOND
        times = {"scheduled_ns": due, "sent_ns": due + lag_ms * MILLISECOND, "done_ns": due + SECOND // 2}
        outcome = Outcome.REFUSED
        if ttft_ms is not None:
            first = due + int(ttft_ms * MILLISECOND)
            last = due + int((e2e_ms or ttft_ms) * MILLISECOND)
            times |= {"first_token_ns": first, "last_token_ns": last, "done_ns": last}
            times |= {"token_ns": (first, last), "output_tokens": output_tokens, "token_source": "usage"}
            outcome = Outcome.OK
        return Sample(request_id=f"r{number}", engine=engine, load="l", label="x", outcome=outcome, **times)

    return request_of


@pytest.fixture
def seen():
    """Make the observation of a stage in which the load `l` ended with these requests of two cards."""

    def seen(requests, *, looks=1, faults=()):
        outcomes = {str(kind): sum(one.outcome is kind for one in requests) for kind in Outcome}
        load = Load(name="l", prompt_tokens=8, output_tokens=10, looks=tuple(range(1, looks + 1)))
        look = OfferedLoad(
            load=load,
            label="x",
            engines=CARDS,
            samples=SampleTable.from_samples(requests, Origin.SENT),
            counters=Counters(scheduled=len(requests), started=len(requests), outcomes=outcomes),
        )
        target = Target(
            name="t",
            model="m",
            grade="simulated",
            nodes=(
                Node(
                    name="node1",
                    cards=tuple(Card(name=name, node="node1", index=int(name[-1])) for name in CARDS),
                ),
            ),
            engines=tuple(
                EngineSpec(
                    name=name, launcher="remote", model="m", members=(Member(node="node1", cards=(name,)),)
                )
                for name in CARDS
            ),
        )
        return Observation(
            stage="single_card",
            target=target,
            load_runs=(LoadRun(load="l", label="x", looks=(look,)),),
            faults=tuple(faults),
        )

    return seen


@pytest.fixture
def check_of():
    """Make the check of one row about the load `l` on the first card, or on another entity."""

    def check_of(metric, unit, *, statistic="value", op=Op.AT_MOST, bound=1.0, entity=CARD, **facts):
        row = Slo(
            id=f"single_card.{metric}",
            stage="single_card",
            metric=metric,
            statistic=statistic,
            op=op,
            bound=bound,
            unit=unit,
            scope=Scope.CARD,
            source="t",
            load="l",
            **facts,
        )
        return Check(slo=row, entity=entity)

    return check_of
