import pytest
from redfish_server import ROOT, Controller, certificate, detector, running

from rackgate.nouns.measurement import Reason
from rackgate.telemetry.chassis.redfish_client import RedfishLogin
from rackgate.telemetry.chassis.redfish_source import RedfishSource
from rackgate.telemetry.reading import CHASSIS_FIELDS

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
        "fan_rpm_lowest": 9800.0,
        "chassis_findings": 0.0,
        "leak_detectors_ok": 2.0,
        "leak_detectors_wet": 0.0,
        "leak_detectors_unknown": 0.0,
    }
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


TRAY = f"{ROOT}/Chassis/Tray_0"
THERMAL = f"{TRAY}/ThermalSubsystem"


@pytest.mark.parametrize(
    ("broken", "lost"),
    [
        (f"{THERMAL}/ThermalMetrics", {"chassis_temperature_c"}),
        (f"{THERMAL}/Fans/0", {"fan_rpm", "fan_rpm_lowest", "chassis_findings"}),
        (f"{TRAY}/PowerSubsystem/PowerSupplies/0/Metrics", {"power_supply_input_w"}),
        (f"{TRAY}/EnvironmentMetrics", {"chassis_power_w", "chassis_temperature_c"}),
        (f"{THERMAL}/LeakDetection/LeakDetectors/0", set()),
        (f"{TRAY}/Sensors/Inlet", {"chassis_findings"}),
    ],
)
@pytest.mark.parametrize("status", [404, 500])
def test_a_resource_that_breaks_after_the_first_look_takes_only_its_fields(
    controller, url, keys, broken, lost, status
):
    add_sensors(controller, sensor("Inlet", 24.0))
    source = source_of(url, keys)
    assert all(one.value is not None for one in source.poll())
    controller.broken[broken] = status
    found = {one.field: one for one in source.poll()}
    source.close()
    assert lost == {name for name, one in found.items() if one.value is None}
    unknown = 1.0 if "LeakDetectors" in broken else 0.0
    assert unknown == found["leak_detectors_unknown"].value


def test_a_broken_supply_counts_though_another_cannot_be_read(controller, url, keys):
    source = source_of(url, keys)
    controller.broken[f"{TRAY}/PowerSubsystem/PowerSupplies/0"] = 500
    found = {one.field: one for one in source.poll()}
    source.close()
    assert (1.0, "PSU 1: Enabled, health Critical") == (
        found["power_supplies_bad"].value,
        found["power_supplies_bad"].detail,
    )
    assert found["power_supplies_ok"].value is None


def sensor(name, reading, **more):
    limits = {"UpperCritical": {"Reading": 45.0}, "UpperCaution": {"Reading": 40.0}}
    status = {"State": "Enabled", "Health": "OK"}
    return {"Name": name, "Reading": reading, "Thresholds": limits, "Status": status, **more}


def add_sensors(controller, *bodies):
    controller.tree[TRAY]["Sensors"] = {"@odata.id": f"{TRAY}/Sensors"}
    paths = [f"{TRAY}/Sensors/{body['Name']}" for body in bodies]
    controller.tree[f"{TRAY}/Sensors"] = {"Members": [{"@odata.id": path} for path in paths]}
    controller.tree |= dict(zip(paths, bodies, strict=True))


@pytest.mark.parametrize(
    ("bodies", "value", "detail"),
    [
        ((sensor("Inlet", 24.0), sensor("Spare", None, Status={"State": "Absent"})), 0.0, ""),
        ((sensor("Inlet", 46.0),), 1.0, "Inlet: critical (>= 45)"),
        ((sensor("Inlet", 41.0), sensor("Exhaust", 20.0)), 1.0, "Inlet: warning (>= 40)"),
        ((sensor("Inlet", None),), None, "Inlet: unknown: enabled but no reading"),
        ((sensor("Inlet", None), sensor("Exhaust", 50.0)), 1.0, "Exhaust: critical (>= 45)"),
    ],
)
def test_each_sensor_beyond_its_limits_is_a_finding_with_its_name(
    controller, url, keys, bodies, value, detail
):
    add_sensors(controller, *bodies)
    found = finding(source_of(url, keys))
    assert (value, True) == (found.value, detail in found.detail), found


def finding(source):
    found = next(one for one in source.poll() if one.field == "chassis_findings")
    source.close()
    return found


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"SpeedPercent": {"Reading": 0, "SpeedRPM": 0}}, "Fan 1: stands still"),
        ({"SpeedPercent": {"Reading": 0}}, "Fan 1: stands still"),
        ({"Status": {"State": "Enabled", "Health": "Warning"}}, "Fan 1: Warning"),
    ],
)
def test_a_fan_that_stands_still_is_seen_beside_one_that_turns(controller, url, keys, changes, detail):
    turning = controller.tree[f"{THERMAL}/Fans/0"]
    controller.tree[f"{THERMAL}/Fans/1"] = {**turning, "Name": "Fan 1", **changes}
    controller.tree[f"{THERMAL}/Fans"]["Members"].append({"@odata.id": f"{THERMAL}/Fans/1"})
    source = source_of(url, keys)
    assert 9800.0 == values(source)["fan_rpm"]
    found = finding(source)
    assert (1.0, detail) == (found.value, found.detail)


def test_sensors_are_read_in_turn_where_one_look_has_no_time_for_all(controller, url, keys):
    add_sensors(controller, *(sensor(f"S{number}", 20.0) for number in range(3)))
    login = RedfishLogin(user="reader", password="s3cret", ca_file=keys[0])
    source = RedfishSource("n1", url, login, every_s=0.0, sensors_s=0.0)
    looks = [next(one for one in source.poll() if one.field == "chassis_findings") for _ in range(4)]
    source.close()
    assert looks[0].value is None
    assert "of 3 sensors were read in time" in looks[0].detail


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
