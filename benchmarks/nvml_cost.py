"""What it costs to ask NVML for eight cards, as a share of one core: the asking child and our thread.

usage: nvml_cost.py [SECONDS]

The library is the stand-in of `tests/nvml`, which answers at once: what is measured is our side.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from rackgate.telemetry.nvml_source import NvmlSource

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "nvml"))

from nvml_stand_in import StandIn, compiled, node_of

CARDS = 8
GOAL = 0.01


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have had."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def only_child() -> int:
    """Return the process that asks the library."""
    (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(child)


def share(source: NvmlSource, child: int, rate_hz: float, seconds: float) -> float:
    """Return the CPU of child and asker over the wall time, asking `rate_hz` times a second."""
    before, began = cpu_s(child) + time.process_time(), time.perf_counter()
    for tick in range(1, round(seconds * rate_hz) + 1):
        source.poll()
        time.sleep(max(0.0, began + tick / rate_hz - time.perf_counter()))
    return (cpu_s(child) + time.process_time() - before) / (time.perf_counter() - began)


def main() -> int:
    """Print the shares at 1 and 10 Hz; 1 if the one at 10 Hz is over the goal."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_in = StandIn(folder, compiled(folder), CARDS)
        source = NvmlSource(node_of(CARDS), environment=stand_in.environment)
        try:
            source.poll()
            shares = {rate: share(source, only_child(), rate, seconds) for rate in (1.0, 10.0)}
        finally:
            source.close()
    for rate, found in shares.items():
        print(f"{CARDS} cards at {rate:2.0f} Hz: {100 * found:.2f} % of a core")
    print(f"goal at 10 Hz: below {100 * GOAL:g} %")
    return int(shares[10.0] > GOAL)


if __name__ == "__main__":
    raise SystemExit(main())
