import pytest

from rackgate.fault import FaultTimeline
from rackgate.telemetry.kernel_log import parse_log
from rackgate.telemetry.xid import explained_by, judge_events, known_codes, worst_of, xid_class
from rackgate.verdict import Verdict

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
    return worst_of(judge_events(parse_log(raw), card_of=CARD, **kwargs))


def test_the_table_has_every_code_of_the_three_sets_and_no_other():
    assert set(known_codes()) == FAIL | WARN | INFO
    by_set = {Verdict.FAIL: FAIL, Verdict.WARN: WARN, Verdict.PASS: INFO}
    for counts_as, codes in by_set.items():
        assert {code for code in known_codes() if xid_class(code).counts_as == counts_as} == codes


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
        parse_log("[1.0] NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.\n"), card_of=CARD
    )
    assert (judged.verdict, judged.entity) == (Verdict.FAIL, "n1/gpu1")


def test_an_event_of_an_unknown_card_keeps_its_address():
    (judged,) = judge_events(parse_log(line(79, pci="0000:44:00")), card_of=CARD)
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
    ],
)
def test_other_lines_of_the_kernel_are_findings_too(raw, kind, expected):
    (judged,) = judge_events(parse_log(f"[ 5.000001] {raw}\n"))
    assert (judged.event.kind, judged.verdict) == (kind, expected)


def test_an_ordinary_log_has_no_event():
    raw = "[1.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.82.07\n[2.0] eth0: Link is Up - 10Gbps\n"
    assert parse_log(raw) == ()
    assert worst_of(()) == Verdict.PASS
