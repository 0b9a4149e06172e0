"""How a target opens its nodes' hosts, which rows are asked there, and what preflight sees in them."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from rackgate.checks.plan import plan_checks
from rackgate.config.problems import ConfigError
from rackgate.config.target_file import parse_target
from rackgate.hosts.runner import Ran
from rackgate.metrics.shipped import shipped_registry
from rackgate.nouns.node import NodeAccess, Redfish
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.preflight.hosts import inspect_hosts
from rackgate.preflight.nodes import measured_nodes, probe_cards
from rackgate.telemetry.cards.nvidia_smi_source import COLUMNS, SmiSource

METRICS = shipped_registry().metrics

ROOTS = files("rackgate.simulator") / "host_roots"


def target(node_telemetry=None, *, cards=0, nodes=1, **tables):
    document = {
        "target": {"name": "rack", "model": "m"},
        "node": [
            {
                "name": f"n{number}",
                "cards": cards,
                **({"telemetry": node_telemetry} if node_telemetry else {}),
            }
            for number in range(1, nodes + 1)
        ],
        "engine": [{"name": "e", "launcher": "remote", "url": "http://h:1"}],
        **tables,
    }
    return parse_target(document, "rack.toml", {"remote": lambda _: []})


def row(metric, scope=Scope.NODE, load=None):
    return Slo(
        id=f"preflight.{metric}",
        stage="preflight",
        metric=metric,
        statistic="value",
        op=Op.EQUAL,
        bound=0.0,
        unit="",
        scope=scope,
        source="test",
        load=load,
    )


def absent(rack, metric, scope=Scope.NODE):
    return [
        check.declared_absent for check in plan_checks(rack, [row(metric, scope)], metrics=METRICS, probes={})
    ]


def test_a_node_is_opened_by_its_telemetry_table():
    rack = target({"ssh": "n1.example", "sudo": True, "kernel_log": "/var/log/kern.log"})
    access = rack.nodes[0].access
    assert access == NodeAccess(ssh="n1.example", sudo=True, kernel_log="/var/log/kern.log")
    assert access.reaches_host
    assert not target().nodes[0].access.reaches_host


def test_a_controller_is_declared_by_variables_and_never_by_secrets():
    table = {
        "url": "https://bmc",
        "user_env": "BMC_USER",
        "password_env": "BMC_PASSWORD",
        "pinned": "bmc.pem",
    }
    node = {"name": "n1", "redfish": table}
    assert target(node=[node]).nodes[0].access.redfish == Redfish(
        url="https://bmc", user_env="BMC_USER", password_env="BMC_PASSWORD", pinned_file="bmc.pem"
    )


@pytest.mark.parametrize(
    ("telemetry", "problem"),
    [
        ({"local": True, "ssh": "n1"}, "node[0].telemetry: local and ssh: one of them"),
        ({"cards": "nvml"}, "node[0].telemetry.cards: 'nvml' reads this machine: it needs local = true"),
        ({"cards": "nvidia-smi"}, "node[0].telemetry.cards: 'nvidia-smi' needs local = true, ssh or docker"),
        (
            {"ssh": "n1", "docker": "n1", "docker_image": "i"},
            "node[0].telemetry: ssh and docker: one of them",
        ),
        ({"docker": "n1"}, "node[0].telemetry: docker and docker_image: both or none"),
        ({"cards": "prometheus"}, "node[0].telemetry.cards: 'prometheus' needs [telemetry] prometheus"),
        ({"cards": "exporter"}, "node[0].telemetry.cards: 'exporter' needs the node's exporter"),
    ],
)
def test_a_source_that_cannot_be_reached_is_a_problem_of_the_file(telemetry, problem):
    with pytest.raises(ConfigError) as refused:
        target(telemetry)
    assert (f"rack.toml: {problem}",) == refused.value.problems


def test_a_prometheus_makes_its_source_possible():
    rack = target(
        {"cards": "prometheus"}, telemetry={"prometheus": "http://p:9090", "ssh_config": "ssh.conf"}
    )
    assert (rack.prometheus_url, rack.ssh_config) == ("http://p:9090", "ssh.conf")


@pytest.mark.parametrize("metric", ["clock_offset_s", "host_module", "xids_since_boot"])
def test_a_row_about_the_host_is_asked_only_where_the_target_opens_it(metric):
    why = "target rack declares no way into the host of n1 ([node.telemetry] local, ssh or docker)"
    assert absent(target(cards=1), metric) == [why]
    assert absent(target({"local": True}, cards=1), metric) == [""]


def test_a_node_without_cards_has_no_driver_to_look_at():
    assert absent(target({"local": True}), "host_driver") == ["target rack declares no cards of n1"]


def test_a_kernel_log_alone_answers_for_xids():
    rack = target({"kernel_log": "/var/log/kern.log"})
    assert absent(rack, "xids_since_boot") == [""]
    assert absent(rack, "host_driver") != [""]


def test_nodes_are_compared_only_where_there_are_two():
    assert "nothing to compare" in absent(target({"local": True}), "host_outliers")[0]
    assert absent(target({"ssh": "x"}, nodes=2), "host_outliers") == ["", ""]


def test_a_card_is_compared_only_where_there_are_two_others():
    assert "too few cards" in absent(target(cards=2), "temperature_deviation_c", Scope.CARD)[0]
    assert absent(target(cards=3), "temperature_deviation_c", Scope.CARD) == [""] * 3


def test_preflight_reads_a_host_and_its_kernel_log():
    rack = target(cards=2, nodes=2)
    access = [NodeAccess(root=str(ROOTS / name)) for name in ("healthy", "neglected")]
    nodes = tuple(replace(node, access=one) for node, one in zip(rack.nodes, access, strict=True))
    rack = replace(rack, nodes=nodes)
    found = measured_nodes(rack, inspect_hosts(rack)).probes
    names = ("host_module", "host_driver", "host_cuda", "clock_offset_s", "xids_since_boot")
    assert [found[name, "n1"].value for name in names] == [0.0, 0.0, 0.0, pytest.approx(12e-6), 0.0]
    assert [found[name, "n2"].value for name in names] == [1.0, 1.0, 2.0, 0.25, 2.0]


def test_a_node_that_is_not_opened_is_not_looked_into():
    closed = target(cards=2)
    assert measured_nodes(closed, inspect_hosts(closed)).probes == {}


class Asked:
    """Answers nothing and keeps what it was asked."""

    name = "n1"
    argv = ()

    def run(self, command, _):
        self.argv = command.argv
        return Ran(text="", status=0)


def test_preflight_reads_cards_from_the_source_that_the_target_names(tmp_path):
    rack = target({"ssh": "n1", "cards": "nvidia-smi"}, cards=2)
    node = replace(rack.nodes[0], access=replace(rack.nodes[0].access, root=tmp_path))
    words = dict.fromkeys(COLUMNS.values(), "0") | {"temperature.gpu": "41"}
    asked = Asked()
    SmiSource(node, asked).poll()
    folder = tmp_path / "commands"
    folder.mkdir()
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", " ".join(asked.argv))[:120]
    text = (
        ", ".join(
            ["0", "NVIDIA H100", "GPU-0", "00000000:1B:00.0", "[N/A]", "Disabled", "0x0", *words.values()]
        )
        + "\n"
    )
    (folder / f"{name}.txt").write_text(text)
    found = probe_cards(replace(rack, nodes=(node,)))
    assert [found["card_present", f"n1/gpu{index}"].value for index in (0, 1)] == [1.0, 0.0]
    assert found["ecc_volatile_uncorrectable", "n1/gpu0"].value == 0.0
