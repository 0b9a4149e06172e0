"""The process that offers a load: plan on standard input, samples to the spool, result on standard output.

It ends the load when its standard input ends, so that it never outlives whoever started it.
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

from rackgate.loadgen.requests.plan import Plan
from rackgate.loadgen.worker.live_state import NOW_EVERY_S, now_path, write_now
from rackgate.loadgen.worker.offer import Offering
from rackgate.loadgen.worker.priority import go_first


def main() -> int:
    """Run one plan; the exit status is 0 if the result was written."""
    go_first()
    line, ended = _read_plan()
    plan = Plan.from_json(line)
    spool = os.open(plan.spool, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        result = runner.run(_offer(plan, lambda row: os.write(spool, row), ended=ended))
    os.close(spool)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing is left to tidy up, and interpreters take their time


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _offer(plan: Plan, write: Callable[[bytes], object], *, ended: bool) -> dict[str, Any]:
    offer = Offering(plan, write)
    loop = asyncio.get_running_loop()
    told = os.open(now_path(Path(plan.spool)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def tell() -> None:
        write_now(told, offer.now())
        loop.call_later(NOW_EVERY_S, tell)

    tell()
    loop.set_exception_handler(_die)
    loop.add_signal_handler(signal.SIGTERM, offer.stop)

    def heard() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
        offer.stop()

    loop.add_reader(0, heard)
    if ended:
        offer.stop()
    return await offer.run()


def _die(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001
    """End on a fault of our own: a request that silently never ends would be blamed on the rack."""
    error = context.get("exception")
    if error is not None:
        traceback.print_exception(error)
    sys.stderr.write(f"{context.get('message', '')}: {error!r}\n")
    sys.stderr.flush()
    os._exit(71)


def _read_plan() -> tuple[str, bool]:
    """Return the first line of standard input, and whether the load was already told to end."""
    said = b""
    while b"\n" not in said:
        piece = os.read(0, 65536)
        if not piece:
            break
        said += piece
    line, _, rest = said.partition(b"\n")
    return line.decode(), bool(rest)


if __name__ == "__main__":
    sys.exit(main())
