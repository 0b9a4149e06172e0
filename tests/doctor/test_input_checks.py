"""Each kind of input is really tried: it is there, or it is not and the smallest cure is named."""

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from local_server import Answer, serving

from rackgate.doctor.forecast import Outlook
from rackgate.nouns.node import Card, Expect, Node, NodeAccess, Redfish
from rackgate.nouns.slo import Op, Scope, Slo
from rackgate.nouns.target import BatchSystem, EngineSpec, Gateway, LoadMachines, Member, Prices, Target

CARD = "n1/gpu0"
HEALTHY = Path(__file__).parents[2] / "plugins" / "rackgate" / "simulator" / "host_roots" / "healthy"


def row(metric, scope="card", stage="preflight", load=None, op="==", bound=0.0):
    return Slo(
        id=f"{stage}.{metric}",
        stage=stage,
        metric=metric,
        statistic="value",
        op=Op(op),
        bound=bound,
        unit="",
        scope=Scope(scope),
        source="test",
        load=load,
        window="load",
    )


def target(exporter=None, engine=None, **more):
    access = more.pop("access", NodeAccess())
    node = Node(name="n1", cards=(Card(name=CARD, node="n1", index=0),), exporter_url=exporter, access=access)
    spec = EngineSpec(
        name="e0",
        launcher=more.pop("launcher", "remote"),
        model="m",
        url=engine or "http://127.0.0.1:1",
        members=(Member(node="n1", cards=(CARD,)),),
        api_key_env=more.pop("key", None),
        settings=more.pop("settings", {}),
    )
    return Target(name="rack", model="m", grade="accelerator", nodes=(node,), engines=(spec,), **more)


def test_a_signal_that_the_exporter_shows_will_run(forecasts, page):
    found = forecasts(target(page), [row("telemetry_coverage", op="==", bound=1.0)])
    assert Outlook.RUN == found[f"preflight.telemetry_coverage @ {CARD}"].outlook


def test_a_signal_that_the_exporter_leaves_out_is_cured_by_a_line_of_its_counter_list(forecasts, page):
    one = forecasts(target(page), [row("ecc_volatile_uncorrectable")])[
        f"preflight.ecc_volatile_uncorrectable @ {CARD}"
    ]
    assert (Outlook.UNKNOWN, "card:ecc_volatile_uncorrectable") == (one.outlook, one.needed)
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter" in one.cure


def test_a_blank_signal_is_unknown(forecasts):
    blank = 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0"} 9223372036854775794\n'
    with serving(lambda _: Answer(200, blank)) as url:
        one = forecasts(target(url), [row("ecc_volatile_uncorrectable")])[
            f"preflight.ecc_volatile_uncorrectable @ {CARD}"
        ]
    assert Outlook.UNKNOWN == one.outlook
    assert "driver reload" in one.cure


def test_a_card_that_the_exporter_does_not_list_will_fail(forecasts):
    with serving(lambda _: Answer(200, 'DCGM_FI_DEV_GPU_TEMP{gpu="7"} 40\n')) as url:
        one = forecasts(target(url), [row("card_present", bound=1.0)])[f"preflight.card_present @ {CARD}"]
    assert Outlook.FAIL == one.outlook


def test_an_exporter_that_nobody_started_is_unknown(forecasts):
    one = forecasts(target("http://127.0.0.1:1/metrics"), [row("card_present", bound=1.0)])[
        f"preflight.card_present @ {CARD}"
    ]
    assert Outlook.UNKNOWN == one.outlook
    assert one.cure.startswith("start dcgm-exporter")


def test_the_drivers_library_is_asked_and_a_sensor_that_is_not_there_named(forecasts, stand_in):
    stand_in.card(0, **{"field.82!": 3})
    rows = [
        row("memory_temperature_c", stage="single_card", load="interactive", op="<=", bound=95.0),
        row("power_limit_share", stage="single_card", load="interactive", op="<=", bound=1.05),
    ]
    listed = '{"data": [{"id": "m"}]}'
    with serving(lambda _: Answer(200, listed)) as url:
        found = forecasts(target(engine=url, access=NodeAccess(cards="nvml", local=True)), rows)
    hot, power = (found[f"{one.id} @ {CARD}"] for one in rows)
    assert (Outlook.UNKNOWN, Outlook.RUN) == (hot.outlook, power.outlook)
    assert "disabled = true" in hot.cure


def test_of_several_inputs_one_is_enough(forecasts, page, engine):
    asked = row("power_w", stage="single_card", load="interactive", op="<=", bound=700.0)
    assert Outlook.RUN == forecasts(target(page, engine), [asked])[f"{asked.id} @ {CARD}"].outlook


def test_an_engine_that_lists_its_model_will_run(forecasts, engine):
    rows = [
        row(name, "engine", bound=1.0) for name in ("engine_reachable", "model_served", "first_request_ok")
    ]
    assert {Outlook.RUN} == {one.outlook for one in forecasts(target(engine=engine), rows).values()}


def test_an_engine_that_nobody_started_will_fail_and_its_loads_are_unknown(forecasts):
    rows = [
        row("engine_reachable", "engine", bound=1.0),
        row("error_rate", "engine", stage="single_card", load="interactive", op="<=", bound=0.01),
    ]
    found = forecasts(target(), rows)
    assert [Outlook.FAIL, Outlook.UNKNOWN] == [found[f"{one.id} @ {CARD}"].outlook for one in rows]
    assert "start what should listen" in found[f"{rows[1].id} @ {CARD}"].cure


def test_another_model_than_the_one_asked_for_will_fail(forecasts):
    with serving(lambda _: Answer(200, '{"data": [{"id": "other"}]}')) as url:
        one = forecasts(target(engine=url), [row("model_served", "engine", bound=1.0)])[
            f"preflight.model_served @ {CARD}"
        ]
    assert (Outlook.FAIL, True) == (one.outlook, "lists other, not m" in one.because)


def test_an_engine_that_lists_no_models_leaves_open_whether_it_has_the_one_asked_for(forecasts):
    rows = [row("model_served", "engine", bound=1.0), row("first_request_ok", "engine", bound=1.0)]
    with serving(lambda _: Answer(404)) as url:
        found = forecasts(target(engine=url), rows)
    assert [Outlook.UNKNOWN, Outlook.RUN] == [found[f"{one.id} @ {CARD}"].outlook for one in rows]


def test_a_key_whose_variable_is_not_set_is_named_and_never_asked_for(forecasts, engine, monkeypatch):
    monkeypatch.delenv("RACK_KEY", raising=False)
    asked = row("first_request_ok", "engine", bound=1.0)
    one = forecasts(target(engine=engine, key="RACK_KEY"), [asked])[f"{asked.id} @ {CARD}"]
    assert (Outlook.UNKNOWN, "export RACK_KEY with the key") == (one.outlook, one.cure)
    monkeypatch.setenv("RACK_KEY", "k")
    again = forecasts(target(engine=engine, key="RACK_KEY"), [asked])[f"{asked.id} @ {CARD}"]
    assert Outlook.RUN == again.outlook


def test_a_refused_key_is_unknown(forecasts):
    with serving(lambda _: Answer(401)) as url:
        one = forecasts(target(engine=url), [row("first_request_ok", "engine", bound=1.0)])[
            f"preflight.first_request_ok @ {CARD}"
        ]
    assert "valid key" in one.cure


def test_a_program_that_an_engine_is_started_with_must_be_there(forecasts):
    asked = row("first_request_ok", "engine", bound=1.0)
    settings = {"command": ["no-such-program"]}
    one = forecasts(target(launcher="process", settings=settings), [asked])[f"{asked.id} @ {CARD}"]
    assert (Outlook.UNKNOWN, True) == (one.outlook, "no-such-program" in one.because)
    there = forecasts(target(launcher="process", settings={"command": ["sh"]}), [asked])
    assert Outlook.RUN == there[f"{asked.id} @ {CARD}"].outlook


def test_a_container_needs_its_daemon_and_its_image(forecasts):
    asked = row("first_request_ok", "engine", bound=1.0)
    settings = {"image": "vllm/vllm-openai:v0", "docker_host": "unix:///nowhere/docker.sock"}
    one = forecasts(target(launcher="container", settings=settings), [asked])[f"{asked.id} @ {CARD}"]
    assert (Outlook.UNKNOWN, True) == (one.outlook, "image vllm/vllm-openai:v0" in one.because)


def test_a_process_that_is_nobodys_on_a_card_is_told_before_the_run(forecasts, tmp_path):
    listing = (HEALTHY / "commands" / "nvidia-smi_-q_-x.txt").read_text(encoding="utf-8")
    process = "<process_info><pid>4242</pid><type>C</type><process_name>miner</process_name>"
    process += "<used_memory>9000 MiB</used_memory></process_info>"
    held = re.sub(
        r"<processes>.*?</processes>", f"<processes>{process}</processes>", listing, flags=re.DOTALL
    )
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "nvidia-smi_-q_-x.txt").write_text(held, encoding="utf-8")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0\n")
    opened = target(access=NodeAccess(root=str(tmp_path)))
    nodes = (replace(opened.nodes[0], expect=Expect(processes=("VLLM::*",))),)
    one = forecasts(replace(opened, nodes=nodes), [row("foreign_processes")])[
        f"preflight.foreign_processes @ {CARD}"
    ]
    assert (Outlook.FAIL, True) == (one.outlook, "miner" in one.because and "4242" in one.because)


def test_loads_through_a_gateway_need_the_gateway(forecasts, engine):
    asked = row("error_rate", "rack", stage="soak", load="mix", op="<=", bound=0.01)
    broken = target(engine=engine, gateway=Gateway(url="http://127.0.0.1:1"))
    assert Outlook.UNKNOWN == forecasts(broken, [asked])["soak.error_rate @ rack"].outlook
    assert Outlook.RUN == forecasts(target(engine=engine), [asked])["soak.error_rate @ rack"].outlook


def test_loads_from_other_machines_need_their_cluster(forecasts, engine):
    asked = row("error_rate", "rack", stage="soak", load="mix", op="<=", bound=0.01)
    lost = target(engine=engine, load_machines=LoadMachines(ray="127.0.0.1:9"))
    one = forecasts(lost, [asked])["soak.error_rate @ rack"]
    assert Outlook.UNKNOWN == one.outlook
    assert one.because.startswith("no Ray cluster answers at 127.0.0.1:9")
    assert one.cure.startswith("start it with `ray start --head`")


def test_facts_of_an_opened_host_are_read(forecasts):
    opened = NodeAccess(root=str(HEALTHY))
    one = forecasts(target(access=opened), [row("clock_offset_s", "node", op="<=", bound=0.01)])
    assert Outlook.RUN == one["preflight.clock_offset_s @ n1"].outlook


def test_a_program_that_a_host_lacks_is_to_be_installed(forecasts, tmp_path):
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0\n")
    opened = NodeAccess(root=str(tmp_path))
    one = forecasts(target(access=opened), [row("clock_offset_s", "node", op="<=", bound=0.01)])[
        "preflight.clock_offset_s @ n1"
    ]
    assert (Outlook.UNKNOWN, "chronyc is not installed") == (one.outlook, one.because)
    assert one.cure.startswith("install chrony")


def test_a_closed_host_is_declared_absent(forecasts):
    found = forecasts(target(), [row("clock_offset_s", "node", op="<=", bound=0.01)])
    assert Outlook.ABSENT == found["preflight.clock_offset_s @ n1"].outlook


def test_a_kernel_log_that_may_not_be_read_names_the_group(forecasts, tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("[    0.000000] Linux version 6.8.0\n")
    asked = row("xids_since_boot", "node")
    good = forecasts(target(access=NodeAccess(kernel_log=str(log))), [asked])
    bad = forecasts(target(access=NodeAccess(kernel_log=str(tmp_path / "none"))), [asked])
    name = "preflight.xids_since_boot @ n1"
    assert (Outlook.RUN, Outlook.UNKNOWN) == (good[name].outlook, bad[name].outlook)
    assert "adm" in bad[name].cure


def test_a_card_that_failed_since_boot_will_fail(forecasts, tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("[  100.0] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n")
    found = forecasts(target(access=NodeAccess(kernel_log=str(log))), [row("xids_since_boot", "node")])
    assert Outlook.FAIL == found["preflight.xids_since_boot @ n1"].outlook


def test_a_login_whose_variables_are_not_set_is_named(forecasts, monkeypatch):
    monkeypatch.delenv("BMC_USER", raising=False)
    monkeypatch.setenv("BMC_PASSWORD", "p")
    redfish = Redfish(url="https://127.0.0.1:1", user_env="BMC_USER", password_env="BMC_PASSWORD")
    asked = row("leak_detectors_wet", "node")
    one = forecasts(target(access=NodeAccess(redfish=redfish)), [asked])["preflight.leak_detectors_wet @ n1"]
    assert (Outlook.UNKNOWN, "the variable BMC_USER is not set") == (one.outlook, one.because)
    assert "ReadOnly" in one.cure


def test_a_controller_that_does_not_answer_is_unknown(forecasts, monkeypatch):
    monkeypatch.setenv("BMC_USER", "u")
    monkeypatch.setenv("BMC_PASSWORD", "p")
    redfish = Redfish(url="https://127.0.0.1:1", user_env="BMC_USER", password_env="BMC_PASSWORD")
    asked = row("leak_detectors_wet", "node")
    one = forecasts(target(access=NodeAccess(redfish=redfish)), [asked])["preflight.leak_detectors_wet @ n1"]
    assert (Outlook.UNKNOWN, True) == (one.outlook, "HTTPS" in one.cure)


@pytest.mark.parametrize(
    ("prices", "outlook"), [(None, Outlook.UNKNOWN), (Prices(currency="EUR", kwh=0.3), Outlook.RUN)]
)
def test_costs_need_prices(forecasts, engine, prices, outlook):
    asked = row("cost_per_1000_requests", "rack", stage="soak", load="mix", op="<=", bound=1.0)
    assert outlook == forecasts(target(engine=engine, prices=prices), [asked])[f"{asked.id} @ rack"].outlook


@pytest.mark.parametrize(("program", "outlook"), [("no-such-program", Outlook.UNKNOWN), ("sh", Outlook.RUN)])
def test_the_batch_systems_program_must_be_on_the_path(forecasts, engine, program, outlook):
    asked = row("batch_lost", "rack", stage="batch_retry")
    found = forecasts(target(engine=engine, batch=BatchSystem(command=(program,))), [asked])
    assert outlook == found["batch_retry.batch_lost @ rack"].outlook


def test_engines_that_were_found_running_cannot_be_killed_from_here(forecasts, engine):
    asked = row("healed", "rack", stage="fault_injection", bound=1.0)
    two = target(engine=engine, may_break=("engine",), gateway=Gateway(url=engine))
    second = EngineSpec(name="e1", launcher="remote", model="m", url=engine)
    two = Target(
        **{**{name: getattr(two, name) for name in two.__slots__}, "engines": (*two.engines, second)}
    )
    one = forecasts(two, [asked])["fault_injection.healed @ rack"]
    assert (Outlook.UNKNOWN, True) == (one.outlook, "killed" in one.because)


def test_what_hangs_holds_nobody_up_and_is_said_to_be_late(forecasts, engine):
    rows = [row("card_present", bound=1.0), row("model_served", "engine", bound=1.0)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"
        found = forecasts(target(address, engine), rows, deadline_s=1.0)
    late, prompt = (found[f"{one.id} @ {CARD}"] for one in rows)
    assert (Outlook.UNKNOWN, Outlook.RUN) == (late.outlook, prompt.outlook)
    assert "did not answer" in late.because


def test_a_card_on_which_no_engine_is_known_to_be_is_told_so(forecasts, page, engine):
    bare = Target(
        name="rack",
        model="m",
        grade="unproven",
        nodes=target(page).nodes,
        engines=(EngineSpec(name="e0", launcher="remote", model="m", url=engine),),
    )
    asked = row("temperature_c", stage="single_card", load="interactive", op="<=", bound=85.0)
    one = forecasts(bare, [asked])[f"{asked.id} @ {CARD}"]
    assert (Outlook.UNKNOWN, True) == (one.outlook, "cards = [...]" in one.cure)
