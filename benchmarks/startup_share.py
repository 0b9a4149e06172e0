"""What the plugin costs a project that does not use it: start-up of pytest with and without it.

usage: startup_share.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_MS = 50.0
OURS = ("rackgate.plugin", "rackgate_fixtures.plugin", "rackgate_reports.plugin")


def start_up_ms(folder: Path, *arguments: str) -> float:
    """Return the milliseconds that one run of one empty test takes."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    began = time.perf_counter_ns()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (time.perf_counter_ns() - began) / 1e6


def main() -> int:
    """Print both, and the difference of the medians; 1 if it is over the goal."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    without = [argument for name in OURS for argument in ("-p", f"no:{name}")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").write_text("def test_empty(): pass\n")
        start_up_ms(folder)
        pairs = [(start_up_ms(folder), start_up_ms(folder, *without)) for _ in range(rounds)]
    ours = [both - alone for both, alone in pairs]
    print(f"pytest alone      {statistics.median(alone for _, alone in pairs):7.1f} ms (median of {rounds})")
    print(f"with rackgate     {statistics.median(both for both, _ in pairs):7.1f} ms")
    share = statistics.median(ours)
    print(f"our share         {share:7.1f} ms (median of the pairs; goal: below {GOAL_MS:g} ms)")
    return int(share > GOAL_MS)


if __name__ == "__main__":
    sys.exit(main())
