import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackgate.config.target_file import parse_target
from rackgate.discovery.card_assignment import cards_by_engine
from rackgate.discovery.machine import CardInventory, Container, FoundCard, Machine, Service, TriageStep
from rackgate.discovery.rack_file import rack_text
from rackgate.discovery.target_source import local_target
from rackgate.engines.launchers import settings_checkers

TEXT = st.text(max_size=20)
CARDS = st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), max_size=4).map(
    lambda rows: tuple(
        FoundCard(index=index, name=name, uuid=uuid, serial=serial, links=links, pci=f"0000:{index:02x}:00.0")
        for index, (name, uuid, serial, links) in enumerate(rows)
    )
)
SERVICES = st.lists(
    st.builds(
        lambda kind, models, owner, protocol, visible: (kind, models, owner, protocol, visible),
        st.sampled_from(["engine", "exporter", "prometheus", "locked"]),
        st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3),
        TEXT,
        st.sampled_from(["openai", "triton"]),
        st.none() | st.lists(st.sampled_from(["0", "1", "7", "GPU-x"]), max_size=3).map(tuple),
    ),
    max_size=5,
).map(
    lambda rows: tuple(
        Service(
            kind=kind,
            port=8000 + place,
            url=f"http://127.0.0.1:{8000 + place}",
            models=tuple(models),
            owner=owner,
            protocol=protocol,
            visible=visible,
            pid=100 + place,
        )
        for place, (kind, models, owner, protocol, visible) in enumerate(rows)
    )
)
MACHINES = st.builds(
    lambda cards, services, note, source: Machine(
        host="box-1",
        inventory=CardInventory(cards=cards, source=source if cards else "", why=note),
        services=services,
        containers=(Container(name=note, image=note, ports=(8000,)),),
        triage=(TriageStep(name="device", ok=False, text=note, next_step=note),),
        notes=(note,),
        versions={"kernel": note},
    ),
    CARDS,
    SERVICES,
    TEXT,
    st.sampled_from(["nvml", "nvidia-smi"]),
)


def read(machine):
    launchers = settings_checkers()
    return parse_target(tomllib.loads(rack_text(machine)), "rack.toml", launchers)


@given(MACHINES)
def test_whatever_was_found_the_file_is_a_whole_target_that_says_it(machine):
    target = read(machine)
    told = [
        (card.index, card.uuid or "", card.serial or "", card.sku or "", card.pci) for card in target.cards
    ]
    found = [(card.index, card.uuid, card.serial, card.name, card.pci) for card in machine.inventory.cards]
    served = [(one.url, one.models[0], one.protocol) for one in machine.of_kind("engine")]
    assert found == told
    assert served == [(spec.url, spec.model, spec.protocol) for spec in target.engines]


def machine(cards=2, services=(), **more):
    listed = tuple(FoundCard(index=index, uuid=f"GPU-{index}") for index in range(cards))
    found = CardInventory(cards=listed, source="nvml" if cards else "", why="" if cards else "no library")
    return Machine(host="box-1", inventory=found, services=tuple(services), **more)


def engine(port, **more):
    return Service(kind="engine", port=port, url=f"http://127.0.0.1:{port}", models=("m",), **more)


def test_an_engine_is_put_on_the_cards_that_its_environment_lets_it_see():
    services = [engine(8000, visible=("1",)), engine(8001, visible=("GPU-0",)), engine(8002)]
    cards = [spec.cards for spec in read(machine(services=services)).engines]
    assert [("box-1/gpu1",), ("box-1/gpu0",), ()] == cards


def test_a_process_on_a_card_says_more_than_the_environment():
    services = (engine(8000, pid=10, visible=("0",)),)
    busy, tree = {1: frozenset({12})}, {12: 11, 11: 10, 10: 1}
    cards = tuple(FoundCard(index=index) for index in (0, 1))
    assert {8000: (1,)} == cards_by_engine(services, cards, busy, tree)


def test_a_card_is_given_to_one_engine_alone():
    services = (engine(8000, visible=("0", "1")), engine(8001, visible=("0",)))
    cards = tuple(FoundCard(index=index) for index in (0, 1))
    assert {8000: (0, 1)} == cards_by_engine(services, cards, {}, {})


def test_processes_that_are_each_others_parents_end_nowhere():
    cards = (FoundCard(index=0),)
    assert {} == cards_by_engine((engine(8000, pid=9),), cards, {0: frozenset({1})}, {1: 2, 2: 1})


def test_a_machine_with_nothing_declares_nothing_and_says_why():
    nothing = machine(
        cards=0, triage=(TriageStep(name="device", ok=False, text="no device", next_step="Look."),)
    )
    text, target = rack_text(nothing), read(nothing)
    assert ((), ()) == (target.cards, target.engines)
    assert "no library" in text
    assert "device: no device. Look." in text


def test_a_file_declares_that_there_is_no_card_where_this_machine_leaves_it_open():
    nothing = machine(
        cards=0, triage=(TriageStep(name="device", ok=False, text="no device", next_step="Look."),)
    )
    here = local_target(nothing)
    assert read(nothing).no_cards is None
    assert ("device: no device", ("(1) device: Look.",)) == (here.no_cards.why, here.no_cards.next_steps)


@pytest.mark.parametrize("on_bus", [False, True])
def test_the_driver_is_judged_only_where_a_card_may_be_there(on_bus):
    step = TriageStep(name="device", ok=on_bus, text="")
    assert on_bus == local_target(machine(cards=0, triage=(step,))).no_cards.on_bus


def test_what_the_machine_has_is_offered_as_what_it_is_held_to_and_not_agreed_by_itself():
    held = machine(versions={"driver": "580.82.07"})
    agreed = rack_text(held).replace("# [node.expect]", "[node.expect]").replace("# driver =", "driver =")
    launchers = settings_checkers()
    (node,) = parse_target(tomllib.loads(agreed), "rack.toml", launchers).nodes
    assert ({}, {"driver": "580.82.07"}) == (read(held).nodes[0].expect.pins, node.expect.pins)


def test_cards_that_were_found_leave_nothing_open():
    assert local_target(machine()).no_cards is None


@pytest.mark.parametrize(("device", "grade"), [(False, "cpu"), (True, "unproven")])
def test_an_engine_is_on_the_cpu_only_where_no_accelerator_is_on_the_bus(device, grade):
    step = TriageStep(name="device", ok=device, text="")
    assert grade == read(machine(cards=0, services=[engine(8000)], triage=(step,))).grade
