"""The target file: facts of a rack, and what is refused."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackgate.config.target_file import endpoint_target, parse_target
from rackgate.engines.protocols.protocol import PROTOCOLS
from rackgate.nouns.target import LoadMachines

TARGET = {
    "target": {"name": "lab", "model": "m"},
    "node": [{"name": "node1", "cards": 2}],
    "engine": [{"name": "e", "launcher": "remote", "url": "http://h:1", "cards": ["node1/gpu0"]}],
}


def changed(path, value):
    data = copy.deepcopy(TARGET)
    *parents, last = path
    place = data
    for part in parents:
        place = place[part]
    place[last] = value
    return data


def test_a_good_file_becomes_a_target(launchers):
    target = parse_target(TARGET, "rack.toml", launchers)
    assert ("lab", "m", "accelerator", ["node1/gpu0", "node1/gpu1"], "rack.toml") == (
        target.name,
        target.model,
        target.grade,
        [card.name for card in target.cards],
        target.source,
    )
    assert "node1/gpu0" == target.engines[0].entity


@pytest.mark.parametrize("name", [*PROTOCOLS, "rackgate.engines.protocols.openai:OPENAI"])
def test_an_engine_may_speak_every_protocol_that_the_load_generator_speaks(launchers, name):
    target = parse_target(changed(["engine", 0, "protocol"], name), "rack.toml", launchers)
    assert name == target.engines[0].protocol


def test_load_may_come_from_other_machines(launchers):
    table = {"ray": "10.0.0.5:6379", "nodes": ["10.0.0.6"], "workers": 4}
    target = parse_target(changed(["load_machines"], table), "rack.toml", launchers)
    assert LoadMachines(ray="10.0.0.5:6379", nodes=("10.0.0.6",), workers=4) == target.load_machines
    assert parse_target(TARGET, "rack.toml", launchers).load_machines is None


def test_a_rack_of_cpu_pools_has_the_grade_cpu(launchers):
    assert "cpu" == parse_target(changed(["engine", 0, "pool"], "cpu"), "rack.toml", launchers).grade


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["target", "modle"], "m", "target.modle: unknown key; did you mean 'model'?"),
        (["target", "vantage"], "root", "target.vantage: Input should be 'endpoint', 'tenant' or 'operator'"),
        (["target", "name"], 7, "target.name: Input should be a valid string (given: 7)"),
        (["target", "may_break"], ["engines"], "target.may_break[0]: Input should be 'engine'"),
        (["node", 0, "cards"], "2", "node[0].cards: Input should be a valid integer (given: '2')"),
        (["node", 0, "cards"], -1, "node[0].cards: Input should be greater than or equal to 0"),
        (["node", 0, "exportr"], "x", "node[0].exportr: unknown key; did you mean 'exporter'?"),
        (["node", 0, "exporter"], "host:9400", "node[0].exporter: must be http://HOST[:PORT] or"),
        (["node"], [{"name": "node1", "cards": 2}] * 2, "node 'node1' is declared twice"),
        (["engine"], {}, "engine: Input should be a valid list"),
        (["load_machines"], {"ray": "head"}, "load_machines.ray: 'head' is not HOST:PORT"),
        (["load_machines"], {"ray": "head:70000"}, "load_machines.ray: 'head:70000' is not HOST:PORT"),
        (["load_machines"], {"ray": "h:1", "worker": 2}, "load_machines.worker: unknown key"),
        (["load_machines"], {"nodes": ["a"]}, "load_machines.ray: missing"),
        (
            ["engine", 0, "launcher"],
            "proces",
            "engine[0].launcher: no launcher 'proces'; did you mean 'process'?",
        ),
        (
            ["engine", 0, "cards"],
            ["node1/gpu7"],
            "engine[0].cards: no card 'node1/gpu7'; did you mean 'node1/gpu",
        ),
        (["engine", 0, "settings"], {"comand": []}, "engine[0].settings: comand: unknown key"),
        (["engine", 0, "url"], "ftp://h", "engine[0].url: must be http://"),
        (["engine", 0, "url"], None, "engine[0].url: missing (launcher 'remote' needs it)"),
        (
            ["engine", 0, "protocol"],
            "grpc",
            "engine[0].protocol: unknown protocol 'grpc'; known: kserve, openai",
        ),
        (["engine", 0, "name"], "a b", "engine[0].name: String should match pattern"),
        (
            ["gateway"],
            {"url": "http://h", "servedby": "x"},
            "gateway.servedby: unknown key; did you mean 'served_by_header'?",
        ),
        (
            ["prices"],
            {"currency": "EUR", "kwh": -0.3},
            "prices.kwh: Input should be greater than or equal to 0",
        ),
        (["batch"], {"command": []}, "batch.command: List should have at least 1 item"),
        (["racks"], [], "racks: unknown key; valid: "),
    ],
)
def test_a_bad_file_is_told_with_key_and_what_would_be_right(wrong_target, path, value, problem):
    (found,) = wrong_target(changed(path, value))
    assert found.startswith(f"rack.toml: {problem}")


def test_one_card_cannot_serve_two_engines(wrong_target):
    engine = TARGET["engine"][0]
    problems = wrong_target(changed(["engine"], [engine, {**engine, "name": "f", "url": "http://h:2"}]))
    assert ["rack.toml: engine[1].cards: node1/gpu0 is already taken by engine e"] == problems


def test_two_engines_of_one_name_are_refused(wrong_target):
    engine = {**TARGET["engine"][0], "cards": []}
    again = {**engine, "url": "http://h:2"}
    assert ["rack.toml: engine 'e' is declared twice"] == wrong_target(changed(["engine"], [engine, again]))


def test_two_engines_cannot_answer_under_one_name(wrong_target):
    first = {**TARGET["engine"][0], "cards": [], "served_by": ["fp_a", "pod-1", "fp_a"]}
    second = {**first, "name": "f", "url": "http://h:2", "served_by": ["fp_a"]}
    assert ["rack.toml: served_by 'fp_a' is declared twice"] == wrong_target(
        changed(["engine"], [first, second])
    )


def test_a_password_in_a_url_is_refused(wrong_target):
    (found,) = wrong_target(changed(["engine", 0, "url"], "http://root:hunter2secret@h:1"))
    assert "name the variable in api_key_env" in found


def test_all_problems_are_told_at_once(wrong_target):
    data = {"target": {"nam": "x"}, "node": [{"cards": "2"}], "engine": [{"name": "e"}]}
    assert 6 == len(wrong_target(data))


def test_a_url_alone_is_a_target_seen_from_outside():
    target = endpoint_target("http://host:8000/", "m", source="http://host:8000/")
    assert ("endpoint", "host", "http://host:8000") == (target.vantage, target.name, target.engines[0].url)
    assert "unproven" == target.grade


@pytest.mark.parametrize(
    ("changes", "grade"),
    [
        ({}, "accelerator"),
        ({("target", "vantage"): "endpoint"}, "unproven"),
        ({("engine", 0, "cards"): []}, "unproven"),
        ({("engine", 0, "cards"): [], ("engine", 0, "pool"): "cpu"}, "cpu"),
        ({("target", "vantage"): "endpoint", ("engine", 0, "pool"): "cpu"}, "unproven"),
        ({("target", "vantage"): "endpoint", ("target", "simulated"): True}, "simulated"),
    ],
)
def test_evidence_is_worth_what_the_target_can_show(launchers, changes, grade):
    data = copy.deepcopy(TARGET)
    for (*parents, last), value in changes.items():
        place = data
        for part in parents:
            place = place[part]
        place[last] = value
    assert grade == parse_target(data, "rack.toml", launchers).grade


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["engine", 0, "name"], "gateway", "engine[0].name: 'gateway' is a name that every run uses itself"),
        (["engine", 0, "name"], "rack", "engine[0].name: 'rack' is a name that every run uses itself"),
        (["engine", 0, "name"], "gpu", "engine[0].name: 'gpu' is a pool"),
        (["engine", 0, "name"], "node1", "engine[0].name: 'node1' is a node"),
        (["engine", 0, "pool"], "rack", "engine[0].pool: 'rack' is a name that every run uses itself"),
        (["engine", 0, "pool"], "node1", "engine[0].pool: 'node1' is a node"),
        (["gateway"], {"url": "http://H:1/"}, "gateway.url: http://H:1 is also the address of engine[0].url"),
    ],
)
def test_a_name_or_an_address_that_is_anothers_is_refused(wrong_target, path, value, problem):
    (found,) = wrong_target(changed(path, value))
    assert found.startswith(f"rack.toml: {problem}")


@pytest.mark.parametrize("name", ["gateway", "rack"])
def test_a_node_may_not_have_the_name_of_the_rack_or_the_gateway(wrong_target, name):
    node = {"name": name, "cards": 1}
    (found,) = wrong_target(changed(["node"], [TARGET["node"][0], node]))
    assert (
        f"rack.toml: node[1].name: '{name}' is a name that every run uses itself: choose another name"
        == found
    )


@pytest.mark.parametrize(
    ("first", "second", "twice"),
    [
        ("http://h:1", "http://h:1/", True),
        ("http://h:80", "http://H", True),
        ("https://h", "https://h:443/", True),
        ("http://h:1/a", "http://h:1/b", False),
        ("http://h:1", "http://h:2", False),
        ("http://h", "https://h", False),
    ],
)
def test_one_server_is_not_counted_as_two(wrong_target, first, second, twice):
    engines = [{"name": "a", "launcher": "remote", "url": first}]
    engines.append({"name": "b", "launcher": "remote", "url": second})
    expected = [f"rack.toml: engine[1].url: {second.rstrip('/')} is also the address of engine[0].url"]
    assert (expected if twice else []) == wrong_target(changed(["engine"], engines))


def test_one_exporter_does_not_speak_for_two_nodes(wrong_target):
    nodes = [{"name": name, "cards": 2, "exporter": "http://h:9400/metrics"} for name in ("node1", "node2")]
    assert [
        "rack.toml: node[1].exporter: http://h:9400/metrics is also the address of node[0].exporter"
    ] == wrong_target(changed(["node"], nodes))


STARTED = {"launcher": "process", "settings": {"command": ["lb", "{e.url}", "{each.host}:{each.port}"]}}


def test_a_gateway_can_be_started_like_an_engine(launchers):
    gateway = parse_target(changed(["gateway"], STARTED), "rack.toml", launchers).gateway
    assert (True, None, "process", "x-served-by") == (
        gateway.started,
        gateway.url,
        gateway.launcher,
        gateway.served_by_header,
    )
    found = parse_target(changed(["gateway"], {"url": "http://g"}), "rack.toml", launchers).gateway
    assert (False, "http://g") == (found.started, found.url)


@pytest.mark.parametrize(
    ("gateway", "problems"),
    [
        ({}, ["gateway.url: missing (launcher 'remote' needs it)"]),
        (
            {"url": "http://g", "settings": {"command": []}},
            ["gateway.settings: launcher 'remote' has none: it starts nothing"],
        ),
        (
            {**STARTED, "launcher": "proces"},
            ["gateway.launcher: no launcher 'proces'; did you mean 'process'?"],
        ),
        (
            {**STARTED, "url": "http://g"},
            ["gateway.url: launcher 'process' starts it: it is known only then"],
        ),
        (
            {"launcher": "process", "settings": {"comand": [], "command": ["{d.url}", "{model.name}"]}},
            [
                "gateway.settings: comand: unknown key",
                "gateway.settings: no engine 'd' behind it; valid: e, each",
                "gateway.settings: no engine 'model' behind it; valid: e, each",
            ],
        ),
        ({"launcher": 7}, ["gateway.launcher: Input should be a valid string (given: 7)"]),
    ],
)
def test_a_gateway_that_cannot_be_had_is_refused_with_all_problems(wrong_target, gateway, problems):
    found = wrong_target(changed(["gateway"], gateway))
    assert [f"rack.toml: {problem}" for problem in problems] == found


def test_a_started_gateway_has_no_members(wrong_target, launchers):
    launchers["process"] = lambda _settings: []
    gateway = {"launcher": "process", "settings": {"members": []}}
    assert ["rack.toml: gateway.settings.members: a gateway has none"] == wrong_target(
        changed(["gateway"], gateway)
    )


def test_an_engine_without_cards_can_say_its_node(launchers):
    engine = {"name": "e", "launcher": "remote", "url": "http://h:1", "pool": "cpu", "node": "node1"}
    spec = parse_target(changed(["engine"], [engine]), "rack.toml", launchers).engines[0]
    assert ("e", ("node1",), ()) == (spec.entity, spec.nodes, spec.cards)


@pytest.mark.parametrize(
    ("node", "cards", "problem"),
    [
        ("nod1", [], "engine[0].node: no node 'nod1'; did you mean 'node1'?"),
        ("node1", ["node1/gpu0"], "engine[0].node: its cards say it: leave it out"),
    ],
)
def test_a_node_that_cannot_be_the_engines_is_refused(wrong_target, node, cards, problem):
    engine = {"name": "e", "launcher": "remote", "url": "http://h:1", "node": node, "cards": cards}
    assert [f"rack.toml: {problem}"] == wrong_target(changed(["engine"], [engine]))


def test_contradictions_are_told_with_the_mistakes_of_form(wrong_target):
    data = changed(["target", "nam"], "x")
    data["engine"][0] |= {"launcher": "proces", "cards": ["node1/gpu7"], "naem": "e"}
    data["engine"].append({"name": "e", "launcher": "remote", "url": 7})
    del data["target"]["model"]
    assert {
        "rack.toml: target.model: missing",
        "rack.toml: target.nam: unknown key; did you mean 'name'?",
        "rack.toml: engine[0].naem: unknown key; did you mean 'name'?",
        "rack.toml: engine[1].url: Input should be a valid string (given: 7)",
        "rack.toml: engine 'e' is declared twice",
        "rack.toml: engine[0].cards: no card 'node1/gpu7'; did you mean 'node1/gpu1'?",
        "rack.toml: engine[0].launcher: no launcher 'proces'; did you mean 'process'?",
    } == set(wrong_target(data))


def test_a_machine_of_which_preflight_looks_alone_needs_no_engine_and_no_model(launchers):
    target = parse_target(
        {"target": {"name": "a"}, "node": [{"name": "n", "cards": 2}]}, "rack.toml", launchers
    )
    assert ((), "", "unproven") == (target.engines, target.model, target.grade)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({}, "engine: missing: one [[engine]], or a [[node]] of which preflight looks at the machine alone"),
        (
            {"node": [{"name": "n"}], "gateway": {"url": "http://g:1"}},
            "gateway: needs an [[engine]] behind it",
        ),
    ],
)
def test_a_file_that_declares_nothing_to_ask_is_refused(wrong_target, more, problem):
    assert [f"rack.toml: {problem}"] == wrong_target({"target": {"name": "a", "model": "m"}, **more})


def test_cards_of_a_node_that_cannot_be_read_are_not_called_unknown(wrong_target):
    (found,) = wrong_target(changed(["node", 0, "cards"], "2"))
    assert found.startswith("rack.toml: node[0].cards: Input should be a valid integer")


SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.dates(), st.just("http://[h")
)
KEYS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            "target",
            "node",
            "engine",
            "gateway",
            "name",
            "model",
            "launcher",
            "url",
            "cards",
            "card",
            "index",
            "settings",
        ]
    ),
)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLE = st.dictionaries(KEYS, ANY, max_size=6)
MIXED = st.builds(lambda extra: {**copy.deepcopy(TARGET), **extra}, TABLE)
ENGINES = st.builds(lambda extra: changed(["engine", 0], {**TARGET["engine"][0], **extra}), TABLE)


@given(st.one_of(TABLE, MIXED, ENGINES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_table_is_accepted_or_refused_in_words(wrong_target, data):
    assert all(problem.startswith("rack.toml: ") for problem in wrong_target(data))
