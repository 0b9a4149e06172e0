import pytest

from rackgate.hosts.runner import LocalRunner, Ran, RootRunner
from rackgate.nouns.measurement import Reason
from rackgate.telemetry.host_source import HostSource
from rackgate.telemetry.reading import HOST_FIELDS

EXCHANGED = {"clock_to_ours_s", "clock_to_ours_bound_s"}
OWN = set(HOST_FIELDS) - {"xid_watch", "xid_events"} - EXCHANGED
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 1 1 9 9 0 0 0 0 1 1 9 9 0 0 0 0
  eth0: 1 1 1 2 0 0 0 0 1 1 3 4 0 0 0 0
  eth1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
"""


@pytest.fixture
def root(tmp_path):
    files = {
        "proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0\n",
        "proc/meminfo": "MemTotal: 100 kB\nMemAvailable:    2048000 kB\n",
        "proc/net/dev": NET,
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/eth1/operstate": "down\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
        **{
            f"sys/class/infiniband/mlx5_0/ports/1/counters/{name}": f"{count}\n"
            for name, count in (
                *(("symbol_error", 7), ("link_downed", 0)),
                *(("port_rcv_errors", 0), ("link_error_recovery", 0)),
            )
        },
        "commands/chronyc_-c_tracking.txt": "A,10.0.0.1,3,1,-0.000250,0,0,0,0,0,0,0,64.2,Normal\n",
        "commands/df_-Pk_.txt": "Filesystem 1024-blocks Used Available Capacity\n/dev/x 10 5 1024000 50% /\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def values(source):
    return {one.field: one.value for one in source.poll()}


def test_every_signal_of_a_host_is_read(root):
    source = HostSource("n1", RootRunner(root), every_s=0.0)
    first = values(source)
    assert (set(first), first["cpu_pct"]) == (OWN, None)
    (root / "proc/stat").write_text("cpu  150 0 100 750 100 0 0 0 0 0\n")
    assert values(source) == {
        "cpu_pct": 50.0,
        "host_memory_available_mib": 2000.0,
        "clock_offset_s": -0.00025,
        "network_errors": 10.0,
        "network_links_down": 1.0,
        "infiniband_ports_active": 1.0,
        "infiniband_ports_down": 1.0,
        "infiniband_errors": 7.0,
        "disk_free_mib": 1000.0,
    }


def test_the_clock_is_compared_with_ours_at_the_first_look(root):
    (root / "commands/date_s._N.txt").write_text("now 0.25\n")
    source = HostSource("n1", RootRunner(root), every_s=0.0)
    found = values(source)
    assert abs(found["clock_to_ours_s"] - 0.25) <= found["clock_to_ours_bound_s"] + 1e-6
    assert set(values(source)) & EXCHANGED == set()


def test_the_clock_is_told_by_another_service_where_there_is_no_chrony(root):
    (root / "commands/chronyc_-c_tracking.txt").unlink()
    name = "pmc_-u_-b_0_GET_TIME_STATUS_NP.txt"
    text = "RESPONSE MANAGEMENT TIME_STATUS_NP\n master_offset 1500\n gmPresent true\n"
    (root / "commands" / name).write_text(text)
    assert 1.5e-6 == values(HostSource("n1", RootRunner(root)))["clock_offset_s"]


@pytest.mark.parametrize("lost", ["symbol_error", "link_downed", "port_rcv_errors", "link_error_recovery"])
def test_an_active_port_without_a_counter_is_no_port_without_errors(root, lost):
    (root / f"sys/class/infiniband/mlx5_0/ports/1/counters/{lost}").unlink()
    found = {one.field: one for one in HostSource("n1", RootRunner(root)).poll()}
    assert found["infiniband_ports_active"].value == 1.0
    assert (found["infiniband_errors"].value, found["infiniband_errors"].reason) == (None, Reason.ABSENT)
    assert found["infiniband_errors"].detail == f"port 1 of mlx5_0 is active and gives no {lost}"


def test_a_counter_of_a_port_that_may_not_be_read_says_so(root):
    class Denying(RootRunner):
        def read(self, patterns, deadline_s):
            denied = Ran(reason=Reason.NO_PERMISSION, detail="denied")
            files = super().read(patterns, deadline_s)
            return {path: denied if "/counters/" in path else ran for path, ran in files.items()}

    found = {one.field: one for one in HostSource("n1", Denying(root)).poll()}
    assert found["infiniband_errors"].reason == Reason.NO_PERMISSION


def test_this_machine_has_memory_and_a_disk():
    source = HostSource("here", LocalRunner(), every_s=0.0, deadline_s=30.0)
    found = values(source)
    assert found["host_memory_available_mib"] > 0
    assert found["disk_free_mib"] > 0


def test_a_clock_that_nobody_keeps_is_a_reason(root):
    (root / "commands/chronyc_-c_tracking.txt").unlink()
    found = {one.field: one for one in HostSource("n1", RootRunner(root)).poll()}
    assert found["clock_offset_s"].reason == Reason.TOOL_MISSING


def test_a_host_that_does_not_answer_is_a_reason_in_every_field():
    class Silent:
        name = "n1"

        def run(self, *_):
            raise AssertionError("a host that gives no file is not asked on")

        def read(self, patterns, _):
            return dict.fromkeys(patterns, Ran(reason=Reason.TIMEOUT, detail="n1 did not answer"))

        def close(self):
            pass

    assert {one.reason for one in HostSource("n1", Silent()).poll()} == {Reason.TIMEOUT}


def test_a_host_is_not_asked_more_often_than_told(root):
    source = HostSource("n1", RootRunner(root), every_s=3600.0)
    assert (len(source.poll()), source.poll()) == (len(OWN), [])
