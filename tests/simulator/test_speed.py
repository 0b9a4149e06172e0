"""How slow things are: only lower bounds, since a loaded machine makes everything slower still."""

from __future__ import annotations

import asyncio
import time

import pytest

from rackgate.simulator.card_state import Slot, new_state, open_state
from rackgate.simulator.engine.scheduler import Scheduler
from rackgate.simulator.knobs import CardKnobs
from rackgate.simulator.rack import start_rack
from rackgate.simulator.scenarios import Scenario
from rackgate.simulator.settings import RackSettings

CHAT = "/v1/chat/completions"


def seconds(http, url, body):
    began = time.monotonic()
    assert http.post(f"{url}{CHAT}", json=body).status_code == 200
    return time.monotonic() - began


class Sequence:
    """A sequence that notes when each of its tokens came, in the time of its loop."""

    def __init__(self, loop, tokens, prompt_tokens=1):
        self.loop = loop
        self.prompt_tokens = prompt_tokens
        self.prefill_left = float(prompt_tokens)
        self.max_tokens = tokens
        self.moments = []
        self.over = asyncio.Event()

    def produce(self):
        self.moments.append(self.loop.time())
        if len(self.moments) == self.max_tokens:
            self.loop.call_soon(self.over.set)
        return len(self.moments) == self.max_tokens


def run(knobs, sequences, *, others=(), prepare=lambda _state: None):
    """Return the state of an engine that ran sequences of (prompt tokens, tokens), and their moments."""

    async def serve():
        loop = asyncio.get_running_loop()
        state = open_state(new_state(1), 1)[0]
        prepare(state)
        scheduler = Scheduler(loop, knobs, state, siblings=others, others=others)
        works = [Sequence(loop, tokens, prompt) for prompt, tokens in sequences]
        for work in works:
            scheduler.submit(work)
        for work in works:
            await work.over.wait()
        return state, [work.moments for work in works], scheduler

    return asyncio.run(serve())


def test_steps_keep_to_absolute_deadlines():
    started = time.monotonic()
    state, (moments,), _ = run(CardKnobs(), [(1, 41)])
    assert state[Slot.BUSY_S] == pytest.approx(1 / 8192 + 40 * 0.00795)
    assert moments[-1] - started >= 40 * 0.00795


def test_a_batch_takes_longer_per_step_but_less_per_token():
    alone, _, _ = run(CardKnobs(), [(1, 21)])
    together, _, _ = run(CardKnobs(), [(1, 21)] * 8)
    assert alone[Slot.BUSY_S] < together[Slot.BUSY_S] < 2 * alone[Slot.BUSY_S]


def test_prefill_is_served_one_after_the_other():
    _, moments, _ = run(CardKnobs(), [(100, 1), (100, 1), (100, 1)])
    firsts = [first for (first,) in moments]
    assert firsts == sorted(firsts)


def test_everything_is_given_back_at_the_end():
    state, _, scheduler = run(CardKnobs(max_num_seqs=2), [(10, 3)] * 5)
    assert (scheduler.running, scheduler.waiting, scheduler.kv_tokens) == (0, 0, 0)
    assert (state[Slot.RUNNING], state[Slot.WAITING], state[Slot.KV_TOKENS]) == (0, 0, 0)


def test_a_lower_clock_stretches_every_step():
    def throttle(state):
        state[Slot.CLOCK_FACTOR] = 0.5

    normal, _, _ = run(CardKnobs(), [(1, 11)])
    slow, _, _ = run(CardKnobs(), [(1, 11)], prepare=throttle)
    assert slow[Slot.BUSY_S] == pytest.approx(2 * normal[Slot.BUSY_S])


@pytest.mark.parametrize(
    ("knobs", "slot", "value"),
    [
        (CardKnobs(sibling_slowdown=3.0), Slot.RUNNING, 1.0),
        (CardKnobs(survivor_slowdown=3.0), Slot.SERVING, 0.0),
    ],
)
def test_what_happens_on_another_card_can_slow_an_engine(knobs, slot, value):
    other = open_state(new_state(1), 1)[0]
    other[Slot.SERVING] = 1.0
    quiet, _, _ = run(knobs, [(1, 11)], others=[other])
    other[slot] = value
    slowed, _, _ = run(knobs, [(1, 11)], others=[other])
    assert slowed[Slot.BUSY_S] == pytest.approx(3 * quiet[Slot.BUSY_S])


def test_a_fading_engine_gets_slower_while_it_is_busy():
    state, _, _ = run(CardKnobs(fade_per_s=5.0), [(1, 41)])
    assert state[Slot.BUSY_S] > 1.5 * 40 * 0.00795


def test_a_slow_card_is_late_and_slow(http, ask):
    knobs = {"decode_slowdown": 5.0, "first_token_delay_ms": 400.0}
    slow = Scenario(name="own", summary="one slow card", cards={"node1/gpu1": knobs})
    with start_rack(RackSettings(), scenario=slow) as rack:
        took_s = seconds(http, rack.engines[1].url, ask(max_tokens=11, ignore_eos=True))
    assert took_s > 0.4 + 10 * 5 * 0.0078


def test_a_jittery_card_is_late_every_so_often(http, ask):
    jittery = Scenario(
        name="own", summary="every third", cards={"*": {"slow_every": 3, "slow_extra_ms": 400.0}}
    )
    with start_rack(RackSettings(nodes=1, cards=1), scenario=jittery) as rack:
        # The gateway's own check was the engine's first request.
        took_s = [seconds(http, rack.engines[0].url, ask(max_tokens=1)) for _ in range(5)]
    assert took_s[1] > 0.4
    assert took_s[4] > 0.4


def test_a_far_node_answers_late_through_the_gateway(http, ask):
    with start_rack(RackSettings(scenario="far_node")) as rack:
        took_s = [seconds(http, rack.target.gateway.url, ask(max_tokens=1)) for _ in range(4)]
    assert sum(each > 0.25 for each in took_s) >= 2
