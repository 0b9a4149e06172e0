"""Kinds of kernel events without a code: meaning, class and next step."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.nouns.verdict import Verdict

CARD_KINDS = frozenset({"xid", "sxid", "fallen_off_bus"})
"""Events of a card or a switch that have a code, or amount to one."""

DRIVER_KINDS = frozenset({"api_mismatch", "driver_not_bound", "probe_failed", "no_adapter"})
"""Events of the cards' driver: without it there is no card."""


@dataclass(frozen=True, slots=True)
class KernelKind:
    """What an event of a kind counts as in a test window, its meaning, and the next step."""

    counts_as: Verdict
    meaning: str
    next_step: str


LOOKALIKE = KernelKind(
    Verdict.WARN,
    "a program wrote this into the log, not the kernel",
    "Who writes into /dev/kmsg there? It counts for no card.",
)

KINDS = {
    "reboot": KernelKind(
        Verdict.FAIL,
        "the node was started anew in mid-run",
        "Read the last lines of the boot before (`journalctl -b -1 -k`), and the controller's log.",
    ),
    "api_mismatch": KernelKind(
        Verdict.FAIL, "driver library and kernel module differ", "Reload the module or reboot."
    ),
    "driver_not_bound": KernelKind(
        Verdict.FAIL,
        "another driver has the cards",
        "Blacklist nouveau (and its like), rebuild the initramfs, reboot.",
    ),
    "probe_failed": KernelKind(
        Verdict.FAIL, "the driver could not take the card", "See the NVRM lines before it."
    ),
    "no_adapter": KernelKind(
        Verdict.FAIL, "the driver found no card", "Is the card listed by lspci? Who has it?"
    ),
    "oom": KernelKind(
        Verdict.FAIL, "the host ran out of memory and killed a process", "Who was killed, who grew?"
    ),
    "aer": KernelKind(
        Verdict.WARN,
        "PCIe error report",
        "Compare link width and replays of this slot; reseat the card.",
    ),
    "edac": KernelKind(
        Verdict.WARN, "error in the host's memory", "Read the EDAC counters; replace the named module."
    ),
    "mlx5": KernelKind(Verdict.WARN, "network adapter error", "See the port's state and error counters."),
    "nvrm": KernelKind(Verdict.WARN, "error told by the cards' driver", "See the XID beside it, if any."),
    "nouveau": KernelKind(
        Verdict.WARN, "nouveau took a card", "Blacklist nouveau, rebuild the initramfs, reboot."
    ),
    "lookalike": LOOKALIKE,
}
"""By kind of event: all that has no code of its own."""
