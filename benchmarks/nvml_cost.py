"""What it costs to sample eight cards through NVML, as a share of one core: the asking child and our threads.

usage: nvml_cost.py [SECONDS]

A real sampler runs, with its thread for the source and the one that watches it; what it keeps in memory is
part of the cost, its start and its end are not. The library is the stand-in of `tests/nvml`: an answer of
it costs no system call, so that what is measured is our side.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rackgate.telemetry.cards.nvml_source import NvmlSource
from rackgate.telemetry.sampler import Sampler

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "nvml"))

from nvml_stand_in import StandIn, compiled, node_of, until

CARDS = 8
GOAL = 0.01
SETTLED_S = 2.0


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have had."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def only_child() -> int:
    """Return the process that asks the library."""
    (child,) = (
        int(one)
        for task in Path("/proc/self/task").iterdir()
        for one in (task / "children").read_text().split()
    )
    return child


def shares(library: Path, folder: Path, rate_hz: float, seconds: float) -> tuple[float, float]:
    """Return the CPU of the child and of our threads over the wall time, at `rate_hz` samples a second."""
    folder.mkdir()
    stand_in = StandIn(folder, library, CARDS)
    source = NvmlSource(node_of(CARDS), environment=stand_in.environment)
    sampler = Sampler([source], folder / "parts", interval_s=1 / rate_hz)
    sampler.start()
    try:
        until(lambda: sampler.last_sample_ns)
        time.sleep(SETTLED_S)
        child = only_child()
        before, own, began = cpu_s(child), time.process_time(), time.perf_counter()
        time.sleep(seconds)
        wall_s = time.perf_counter() - began
        return (cpu_s(child) - before) / wall_s, (time.process_time() - own) / wall_s
    finally:
        sampler.stop()


def main() -> int:
    """Print the shares at 1 and 10 Hz; 1 if the one at 10 Hz is over the goal."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as name:
        library = compiled(Path(name))
        found = {rate: shares(library, Path(name) / f"{rate}", rate, seconds) for rate in (1, 10)}
    for rate, (child, ours) in found.items():
        print(
            f"{CARDS} cards at {rate:2d} Hz: {100 * (child + ours):.2f} % of a core "
            f"(child {100 * child:.2f}, ours {100 * ours:.2f})"
        )
    print(f"goal at 10 Hz: below {100 * GOAL:g} %")
    return int(sum(found[10]) > GOAL)


if __name__ == "__main__":
    raise SystemExit(main())
