import pytest

from rackgate.nouns.fault import FaultTimeline
from rackgate.nouns.verdict import Verdict, worst
from rackgate.telemetry.kernel.kernel_log import parse_log
from rackgate.telemetry.kernel.xid import Circumstances, explained_by, judge_events, xid_class

CARD = {"0000:1b:00.0": "n1/gpu0", "0000:2b:00.0": "n1/gpu1"}
FAIL = {
    *(46, 48, 61, 62, 64, 74, 79, 81, 95, 109, 110, 119, 120, 136, 140, 143),
    *(154, 155, 156, 158, 167, 168, 169, 171, 172),
}
WARN = {
    *(13, 31, 32, 38, 43, 45, 54, 56, 57, 58, 60, 63, 66, 67, 68, 69, 73, 78),
    *(92, 94, 121, 123, 137, 151, 163, 166, *range(144, 151)),
}
INFO = {37, 44, 93, 106, 107, 141, 152, 153, 157, 160, 161, 162, 164}


def line(code, text="something", pci="0000:1b:00", at=10.0):
    return f"[{at:12.6f}] NVRM: Xid (PCI:{pci}): {code}, {text}\n"


def verdict(raw, **kwargs):
    judged = judge_events(parse_log(raw), Circumstances(card_of=CARD, **kwargs))
    return worst([Verdict.PASS, *(one.verdict for one in judged)])


def test_the_table_has_every_code_of_the_three_sets_and_no_other():
    by_set = {Verdict.FAIL: FAIL, Verdict.WARN: WARN, Verdict.PASS: INFO}
    for counts_as, codes in by_set.items():
        assert {code for code in range(1, 1000) if xid_class(code).counts_as == counts_as} == codes


@pytest.mark.parametrize("code", sorted(FAIL | WARN | INFO))
def test_every_row_says_what_it_means_and_what_to_do(code):
    row = xid_class(code)
    assert len(row.meaning) > 8
    assert row.next_step.endswith(".")


@pytest.mark.parametrize(("code", "expected"), [(79, Verdict.FAIL), (92, Verdict.WARN), (106, Verdict.PASS)])
def test_a_code_counts_as_its_set(code, expected):
    assert verdict(line(code)) == expected


def test_a_code_that_nobody_knows_is_unknown_and_never_accepted():
    assert verdict(line(999)) == Verdict.UNKNOWN


def test_a_warning_that_comes_again_on_the_same_card_is_a_failure():
    assert verdict(line(31)) == Verdict.WARN
    assert verdict(line(31) + line(31, pci="0000:2b:00")) == Verdict.WARN
    assert verdict(line(31) + line(31)) == Verdict.FAIL


def test_sign_off_is_stricter_than_ci():
    assert (verdict(line(94)), verdict(line(94), profile="signoff")) == (Verdict.WARN, Verdict.FAIL)
    twice = line(63) + line(63)
    assert (verdict(twice), verdict(twice, profile="signoff")) == (Verdict.WARN, Verdict.FAIL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0 0x0 0x0)", Verdict.FAIL),
        ("NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6 0x0 0x0 0x0)", Verdict.WARN),
        ("a body in a form that nobody has seen", Verdict.UNKNOWN),
    ],
)
def test_an_nvlink5_fault_is_judged_by_its_own_word(text, expected):
    assert verdict(line(149, text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Verdict.PASS),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Verdict.FAIL),
        ("cut off", Verdict.FAIL),
    ],
)
def test_a_recovery_action_other_than_none_fails(text, expected):
    assert verdict(line(154, text)) == expected


def test_a_switch_error_is_fatal_by_its_word_or_by_its_code():
    head = "[1.0] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {}, {}, Link 18 something\n"
    assert verdict(head.format(12028, "Non-fatal")) == Verdict.WARN
    assert verdict(head.format(20034, "Fatal")) == Verdict.FAIL
    assert verdict(head.format(23005, "Non-fatal")) == Verdict.FAIL


def test_a_card_that_fell_off_without_an_xid_counts_like_79():
    (judged,) = judge_events(
        parse_log("[1.0] NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.\n"), Circumstances(card_of=CARD)
    )
    assert (judged.verdict, judged.entity) == (Verdict.FAIL, "n1/gpu1")


def test_an_event_of_an_unknown_card_keeps_its_address():
    (judged,) = judge_events(parse_log(line(79, pci="0000:44:00")), Circumstances(card_of=CARD))
    assert (judged.entity, judged.event.pci) == (None, "0000:44:00.0")


def fault(kind, injected_s, healed_s):
    return FaultTimeline(
        kind=kind, entity="engine-1", injected_ns=int(injected_s * 1e9), healed_ns=int(healed_s * 1e9)
    )


def test_our_own_kill_explains_its_cleanup_and_hides_nothing_else():
    explains = explained_by([fault("kill", 9.0, 11.0)], {"engine-1": ("n1/gpu0",)}, 0)
    assert verdict(line(45), injected=explains) == Verdict.PASS
    assert verdict(line(79), injected=explains) == Verdict.FAIL
    assert verdict(line(45, pci="0000:2b:00"), injected=explains) == Verdict.WARN
    assert verdict(line(45, at=8.0), injected=explains) == Verdict.WARN
    assert verdict(line(45, at=30.0), injected=explains) == Verdict.WARN


@pytest.mark.parametrize(
    ("raw", "kind", "expected"),
    [
        ("pcieport 0000:00:1c.0: AER: Corrected error received: 0000:01:00.0", "aer", Verdict.WARN),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", "edac", Verdict.WARN),
        ("Out of memory: Killed process 4242 (python3) total-vm:1kB", "oom", Verdict.FAIL),
        ("mlx5_core 0000:5e:00.0: health_care: device's health compromised - fatal", "mlx5", Verdict.WARN),
        ("NVRM: No NVIDIA GPU found.", "no_adapter", Verdict.FAIL),
        ("NVRM: nvAssertFailedNoLog: Assertion failed: 0 == 1", "nvrm", Verdict.WARN),
        ("fbcon: nouveaudrmfb nouveau DRM: bound", "nouveau", Verdict.WARN),
    ],
)
def test_other_lines_of_the_kernel_are_findings_too(raw, kind, expected):
    (judged,) = judge_events(parse_log(f"[ 5.000001] {raw}\n"))
    assert (judged.event.kind, judged.verdict) == (kind, expected)


def test_an_ordinary_log_has_no_event():
    raw = "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07\n[2.0] eth0: Link is Up - 10Gbps\n"
    assert parse_log(raw) == ()


def test_a_killed_process_is_one_event_though_the_kernel_tells_it_in_three_lines():
    kill = (
        "[5.1] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0\n"
        "[5.2] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=loader,pid=4242,uid=0\n"
        "[5.3] Out of memory: Killed process 4242 (loader) total-vm:1kB\n"
    )
    assert [event.text for event in parse_log(kill)] == [
        "Out of memory: Killed process 4242 (loader) total-vm:1kB"
    ]
    assert len(parse_log(kill + kill)) == 2


def test_a_ports_error_is_one_event_of_the_device_that_it_names():
    raw = (
        "[5.1] pcieport 0000:00:1c.0: AER: Corrected error message received from 0000:1b:00.0\n"
        "[5.2] nvidia 0000:1b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer\n"
    )
    assert [(event.kind, event.pci) for event in parse_log(raw + raw)] == [("aer", "0000:1b:00.0")] * 2


SM = "Graphics SM {} Exception on (GPC {}, TPC {}, SM 0): Out Of Range Address"


def test_an_exception_of_several_lines_is_one_and_fails_when_its_unit_repeats_it():
    at = 10.0
    once = (
        line(13, SM.format("Warp", 1, 2), at=at)
        + line(13, SM.format("Global", 1, 2), at=at + 0.001)
        + line(13, "Graphics Exception: ESR 0x51ff80=0x24 0x51ff84=0x0", at=at + 0.002)
    )
    assert len(judge_events(parse_log(once))) == 1
    assert verdict(once) == Verdict.WARN
    assert verdict(once + line(13, SM.format("Warp", 3, 0), at=at + 60)) == Verdict.WARN
    assert verdict(once + line(13, SM.format("Warp", 1, 2), at=at + 60)) == Verdict.FAIL


def test_corrected_errors_of_the_chip_to_chip_link_fail_when_their_rate_rises():
    def link(*moments):
        return "".join(line(121, at=moment) for moment in moments)

    window = (0.0, 100e6)
    assert verdict(link(10, 30, 55, 70, 90), window_us=window) == Verdict.WARN
    assert verdict(link(60, 70, 75, 80), window_us=window) == Verdict.WARN
    assert verdict(link(60, 70, 75, 80, 90), window_us=window) == Verdict.FAIL


@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        ({"n1/gpu0": 0.0}, Verdict.WARN),
        ({"n1/gpu0": 1.0}, Verdict.FAIL),
        ({"n1/gpu1": 0.0}, Verdict.UNKNOWN),
        (None, Verdict.WARN),
    ],
)
def test_a_remapped_row_fails_while_its_card_waits_for_the_reset(pending, expected):
    assert verdict(line(63), pending=pending) == expected
    assert "no row remap is pending" in xid_class(63).next_step


def test_what_a_program_wrote_counts_for_no_card_and_repeats_nothing():
    fault = "NVRM: Xid (PCI:0000:1b:00): 31, MMU Fault"
    raw = f"4,1,5000000,-;{fault}\n14,2,6000000,-;{fault}\n"
    judged = judge_events(parse_log(raw), Circumstances(card_of=CARD))
    assert [one.verdict for one in judged] == [Verdict.WARN, Verdict.WARN]
    assert judged[-1].meaning.startswith("a program wrote this")
