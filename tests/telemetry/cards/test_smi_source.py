import pytest

from rackgate.hosts.runner import Ran
from rackgate.nouns.measurement import Reason
from rackgate.nouns.node import Card, Node
from rackgate.telemetry.cards.nvidia_smi_source import COLUMNS, SmiSource
from rackgate.telemetry.reading import REQUIRED

NODE = Node(
    name="n1",
    cards=tuple(Card(name=f"n1/gpu{index}", node="n1", index=index, uuid=f"GPU-{index}") for index in (0, 1)),
)


class Scripted:
    name = "n1"

    def __init__(self, ran):
        self._ran = ran

    def run(self, *_):
        return self._ran

    def close(self):
        pass


def line(index, **words):
    values = dict.fromkeys(COLUMNS.values(), "1")
    values |= {"temperature.gpu": "41", "power.draw": "412.10", "fan.speed": "[N/A]", **words}
    mask = values.pop("mask", "0x0000000000000048")
    address = f"00000000:{0x1B + index:02X}:00.0"
    return ", ".join(
        [str(index), "NVIDIA H100", f"GPU-{index}", address, "[N/A]", "Disabled", mask, *values.values()]
    )


def polled(text, **ran):
    source = SmiSource(NODE, Scripted(Ran(text=text, status=0, **ran)), every_s=0.0)
    return {(one.entity, one.field): one for one in source.poll()}


def test_each_column_is_a_field_of_its_card():
    found = polled(f"{line(1)}\n{line(0)}\n")
    assert found["n1/gpu0", "power_w"].value == 412.1
    assert found["n1/gpu1", "clock_event_reasons"].value == 0x48
    assert found["n1/gpu0", "fan_pct"].reason == Reason.UNSUPPORTED
    assert found["n1/gpu0", "mig_enabled"].value == 0.0


def test_a_performance_state_is_its_number():
    found = polled(f"{line(0, pstate='P2')}\n{line(1, pstate='[N/A]')}\n")
    assert found["n1/gpu0", "performance_state"].value == 2.0
    assert found["n1/gpu1", "performance_state"].reason == Reason.UNSUPPORTED


def test_a_word_of_fault_is_no_value_and_no_end():
    found = polled(f"{line(0, **{'temperature.gpu': '[Unknown Error]'})}\n{line(1)}\n")
    assert found["n1/gpu0", "temperature_c"].reason == Reason.DIED
    assert found["n1/gpu1", "temperature_c"].value == 41.0


def test_a_card_that_is_lost_is_absent_in_every_required_field():
    lost = "Unable to determine the device handle for GPU 0000:2B:00.0: GPU is lost.  Reboot the system"
    found = polled(f"{line(0)}\n{lost}\n")
    assert {found["n1/gpu1", field].reason for field in REQUIRED} == {Reason.ABSENT}
    assert "0000:2B:00.0" in found["n1/gpu1", "power_w"].detail


@pytest.mark.parametrize(
    ("ran", "reason", "words"),
    [
        (
            Ran(text="Failed to initialize NVML: Driver/library version mismatch\n", status=18),
            "not_configured",
            "driver_library_mismatch",
        ),
        (Ran(reason=Reason.TIMEOUT, detail="too long"), "timeout", "driver unresponsive"),
        (
            Ran(reason=Reason.TOOL_MISSING, detail="nvidia-smi is not installed"),
            "tool_missing",
            "not installed",
        ),
        (Ran(text="", status=0), "absent", "said nothing"),
    ],
)
def test_an_answer_that_is_none_is_a_reason(ran, reason, words):
    readings = SmiSource(NODE, Scripted(ran)).poll()
    assert {one.reason for one in readings} == {Reason(reason)}
    assert words in readings[0].detail
