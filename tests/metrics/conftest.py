"""Requests on paper, as one finished load of one engine that a metric can be asked about."""

import pytest

from rackgate.load import Load, Origin
from rackgate.loadgen import Counters, OfferedLoad, SampleTable
from rackgate.observation import Observation, Offer
from rackgate.sample import Outcome, Sample
from rackgate.slo import Check, Op, Scope, Slo
from rackgate.target import Card, EngineSpec, Member, Node, Target

CARD = "node1/gpu0"
SECOND = 1_000_000_000
MILLISECOND = 1_000_000


@pytest.fixture
def request_of():
    """Make one request that was due in second `number`; it failed if it has no `ttft_ms`."""

    def request_of(number, *, ttft_ms=None, e2e_ms=None, output_tokens=10):
        due = number * SECOND
        times = {"scheduled_ns": due, "sent_ns": due, "done_ns": due + SECOND // 2}
        outcome = Outcome.REFUSED
        if ttft_ms is not None:
            first = due + int(ttft_ms * MILLISECOND)
            last = due + int((e2e_ms or ttft_ms) * MILLISECOND)
            times |= {"first_token_ns": first, "last_token_ns": last, "done_ns": last}
            times |= {"token_ns": (first, last), "output_tokens": output_tokens, "token_source": "usage"}
            outcome = Outcome.OK
        return Sample(request_id=f"r{number}", engine=CARD, load="l", label="x", outcome=outcome, **times)

    return request_of


@pytest.fixture
def seen():
    """Make the observation of a stage in which the load `l` ended with these requests."""

    def seen(requests, *, looks=1):
        outcomes = {str(kind): sum(one.outcome is kind for one in requests) for kind in Outcome}
        load = Load(name="l", prompt_tokens=8, output_tokens=10, looks=tuple(range(1, looks + 1)))
        look = OfferedLoad(
            load=load,
            label="x",
            engines=(CARD,),
            samples=SampleTable.from_samples(requests, Origin.SENT),
            counters=Counters(scheduled=len(requests), started=len(requests), outcomes=outcomes),
        )
        target = Target(
            name="t",
            model="m",
            grade="simulated",
            nodes=(Node(name="node1", cards=(Card(name=CARD, node="node1", index=0),)),),
            engines=(
                EngineSpec(
                    name="e", launcher="remote", model="m", members=(Member(node="node1", cards=(CARD,)),)
                ),
            ),
        )
        return Observation(
            stage="single_card", target=target, offers=(Offer(load="l", label="x", looks=(look,)),)
        )

    return seen


@pytest.fixture
def check_of():
    """Make the check of one row about the load `l` on the one card."""

    def check_of(metric, unit, *, statistic="value", op=Op.AT_MOST, bound=1.0, **facts):
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
        return Check(slo=row, entity=CARD)

    return check_of
