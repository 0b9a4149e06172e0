"""The worker process: plan on standard input, samples to the spool file, result on standard output.

It ends the load at the end of standard input, so that it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rackgate.loadgen.child_process import raise_priority
from rackgate.loadgen.requests.plan import LoadPlan
from rackgate.loadgen.worker.live_state import WRITE_EVERY_S, live_state_path, write_live_state
from rackgate.loadgen.worker.load_generator import LoadGenerator


def main() -> int:
    """Run one plan; the exit status is 0 if the result was written."""
    raise_priority()
    line, ended = _read_plan()
    plan = LoadPlan.from_json(line)
    spool = os.open(plan.spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        result = runner.run(_run(plan, lambda row: os.write(spool, row), ended=ended))
    os.close(spool)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0)  # skips the interpreter's slow shutdown


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _run(plan: LoadPlan, write: Callable[[bytes], object], *, ended: bool) -> dict[str, Any]:
    generator = LoadGenerator(plan, write)
    loop = asyncio.get_running_loop()
    state_file = os.open(live_state_path(Path(plan.spool)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def update() -> None:
        write_live_state(state_file, generator.live_state())
        loop.call_later(WRITE_EVERY_S, update)

    update()
    loop.set_exception_handler(_die)
    loop.add_signal_handler(signal.SIGTERM, generator.stop)

    def on_input() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
        generator.stop()

    loop.add_reader(0, on_input)
    if ended:
        generator.stop()
    return await generator.run()


def _die(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001
    """Exit on an error of ours: a request that never ends because of it would be blamed on the rack."""
    error = context.get("exception")
    if error is not None:
        traceback.print_exception(error)
    sys.stderr.write(f"{context.get('message', '')}: {error!r}\n")
    sys.stderr.flush()
    os._exit(71)


def _read_plan() -> tuple[str, bool]:
    """Return the first line of standard input, and whether the load was already cancelled."""
    data = b""
    while b"\n" not in data:
        piece = os.read(0, 65536)
        if not piece:
            break
        data += piece
    line, _, rest = data.partition(b"\n")
    return line.decode(), bool(rest)


if __name__ == "__main__":
    sys.exit(main())
