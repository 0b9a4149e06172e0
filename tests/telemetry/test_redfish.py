import pytest
from redfish_server import ROOT, Controller, certificate, detector, running

from rackgate.measurement import Reason
from rackgate.telemetry.reading import CHASSIS_FIELDS
from rackgate.telemetry.redfish_client import RedfishLogin
from rackgate.telemetry.redfish_source import RedfishSource

LEAK = f"{ROOT}/Chassis/Tray_0/ThermalSubsystem/LeakDetection/LeakDetectors/0"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def url(controller, keys):
    with running(controller, *keys) as address:
        yield address


def source_of(url, keys, **login):
    given = {"user": "reader", "password": "s3cret", "ca_file": keys[0], **login}
    return RedfishSource("n1", url, RedfishLogin(**given), every_s=0.0)


def values(source):
    return {one.field: one.value for one in source.poll()}


@pytest.mark.parametrize("session", [True, False])
def test_every_chassis_field_is_read(controller, url, keys, session):
    source = source_of(url, keys, session=session)
    assert values(source) == {
        "chassis_power_w": 6123.5,
        "chassis_temperature_c": 41.0,
        "power_supply_input_w": 6150.0,
        "power_supplies_ok": 1.0,
        "power_supplies_bad": 1.0,
        "fan_rpm": 9800.0,
        "leak_detectors_ok": 2.0,
        "leak_detectors_wet": 0.0,
        "leak_detectors_unknown": 0.0,
    }
    assert source.findings == ("PSU 1: Critical",)
    assert source.firmware() == {"BMC": "24.10-4"}
    source.close()
    assert (controller.logins, controller.logouts) == ((1, 1) if session else (0, 0))


def test_a_leak_that_dried_was_a_leak(controller, url, keys):
    source = source_of(url, keys)
    controller.tree[LEAK] = detector("Critical")
    assert values(source)["leak_detectors_wet"] == 1.0
    controller.tree[LEAK] = detector("OK")
    found = values(source)
    source.close()
    assert (found["leak_detectors_wet"], found["leak_detectors_ok"]) == (1.0, 1.0)


def test_a_detector_that_is_disabled_says_nothing(controller, url, keys):
    controller.tree[LEAK] = detector("OK", enabled="Disabled")
    source = source_of(url, keys)
    found = values(source)
    source.close()
    assert (found["leak_detectors_unknown"], found["leak_detectors_ok"]) == (1.0, 1.0)


def test_a_session_that_ran_out_is_opened_again(controller, url, keys):
    source = source_of(url, keys)
    values(source)
    controller.sessions.clear()
    assert values(source)["chassis_power_w"] == 6123.5
    source.close()
    assert controller.logins == 2


def test_a_wrong_password_is_no_permission_in_every_field(url, keys):
    source = source_of(url, keys, password="wrong")
    readings = source.poll()
    source.close()
    assert {one.reason for one in readings} == {Reason.NO_PERMISSION}
    assert {one.field for one in readings} == set(CHASSIS_FIELDS)


def test_a_certificate_that_nobody_vouches_for_is_refused(url, keys):
    source = source_of(url, keys, ca_file=None)
    reading = source.poll()[0]
    source.close()
    assert reading.reason == Reason.UNREACHABLE
    assert "not trusted" in reading.detail


def test_a_pinned_certificate_may_bear_another_name(controller, tmp_path):
    keys = certificate(tmp_path, "some-bmc.example")
    with running(controller, *keys) as url:
        by_name = source_of(url, keys)
        assert by_name.poll()[0].reason == Reason.UNREACHABLE
        pinned = source_of(url, keys, ca_file=None, pinned_file=keys[0])
        assert values(pinned)["chassis_power_w"] == 6123.5
        by_name.close()
        pinned.close()


def test_a_part_of_the_tree_that_is_not_there_takes_only_its_fields(controller, url, keys):
    del controller.tree[f"{ROOT}/Chassis/Tray_0/ThermalSubsystem"]
    source = source_of(url, keys)
    found = {one.field: one for one in source.poll()}
    source.close()
    assert found["chassis_power_w"].value == 6123.5
    assert found["leak_detectors_wet"].reason == Reason.UNSUPPORTED


def test_the_password_is_in_no_text():
    assert "s3cret" not in repr(RedfishLogin(user="reader", password="s3cret"))


def test_a_controller_that_is_gone_is_unreachable(keys):
    source = source_of("https://127.0.0.1:9", keys)
    assert {one.reason for one in source.poll()} == {Reason.UNREACHABLE}
    source.close()


def test_the_controller_is_not_asked_more_often_than_told(controller, url, keys):
    login = RedfishLogin(user="reader", password="s3cret", ca_file=keys[0])
    source = RedfishSource("n1", url, login, every_s=3600.0)
    assert source._every_s == 10.0
    assert (len(source.poll()), source.poll()) == (len(CHASSIS_FIELDS), [])
    source.close()
