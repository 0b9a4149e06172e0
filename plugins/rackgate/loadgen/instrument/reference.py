"""Measures the load generator's own error against a reference server that stamps its writes."""

from __future__ import annotations

import json
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackgate.loadgen.child_process import start_child
from rackgate.loadgen.instrument.reference_server import Script
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load
from rackgate.nouns.measurement import Reason

_START_LIMIT_S = 20.0
_FETCH_LIMIT_S = 10.0
INSTRUMENT_FAULTS = ("", "slow", "die", "late", "blank", "reference_die")


class ReferenceDied(Exception):
    """The reference server did not start or has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentError:
    """The load generator's error of each ok request, or the reason why it is unknown.

    `errors_ms` is reported TTFT - true TTFT, `lag_ms` is sent - scheduled. With a reason the arrays are
    empty.
    """

    errors_ms: NDArray[np.float64]
    lag_ms: NDArray[np.float64]
    count: int
    offered: OfferedLoad | None = None
    reason: Reason | None = None
    detail: str = ""


def measure_instrument(
    load: Load,
    *,
    samples_path: Path,
    instrument_fault: str = "",
    ttft_ms: tuple[float, ...] = Script().ttft_ms,
    gap_ms: float = Script().gap_ms,
    seed: int = 1,
) -> InstrumentError:
    """Run `load` against a reference server and return the errors; failures of both are its `reason`.

    `instrument_fault` is one of the worker's (`slow`, `die`, `late`), or `blank` (the reference keeps its
    stamps back), or `reference_die`. Raises `ValueError` for another one.
    """
    if instrument_fault not in INSTRUMENT_FAULTS:
        raise ValueError(f"unknown instrument_fault {instrument_fault!r}")
    script = Script(
        ttft_ms=ttft_ms,
        gap_ms=gap_ms,
        blank_stamps=instrument_fault == "blank",
        die_after=max(1, load.planned_requests // 2) if instrument_fault == "reference_die" else None,
    )
    worker_fault = instrument_fault if instrument_fault in ("slow", "die", "late") else ""
    try:
        with reference_server(script) as url:
            endpoint = Endpoint(entity="reference", url=url, model="reference")
            with start_load(
                load,
                [endpoint],
                label="instrument",
                samples_path=samples_path,
                seed=seed,
                instrument_fault=worker_fault,
            ) as running:
                offered = running.finish()
            if offered.reason is not None:
                return _unknown(offered.reason, offered.detail, offered)
            return _compare(offered, _fetch_stamps(url))
    except ReferenceDied as error:
        return _unknown(Reason.DIED, str(error))


@contextmanager
def reference_server(script: Script) -> Iterator[str]:
    """Yield the URL of a running reference server. Raises `ReferenceDied`."""
    process = start_child("rackgate.loadgen.instrument.reference_server")
    try:
        yield f"http://127.0.0.1:{_port_of(process, script)}"
    finally:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _port_of(process: subprocess.Popen[bytes], script: Script) -> int:
    if process.stdin is None or process.stdout is None:
        raise ReferenceDied("the reference server has no pipes")
    with suppress(OSError):
        process.stdin.write((script.to_json() + "\n").encode())
        process.stdin.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline() if selector.select(_START_LIMIT_S) else b""
    if not line.strip().isdigit():
        raise ReferenceDied(f"the reference server did not come up within {_START_LIMIT_S:g} s")
    return int(line)


def _fetch_stamps(url: str) -> dict[str, int]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=_FETCH_LIMIT_S)
    try:
        connection.request("GET", "/stamps")
        stamps: dict[str, int] = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError) as error:
        raise ReferenceDied(f"the reference server's stamps cannot be had: {error}") from error
    finally:
        connection.close()
    return stamps


def _compare(offered: OfferedLoad, stamps: dict[str, int]) -> InstrumentError:
    if offered.samples is None or not len(offered.samples):
        return _unknown(Reason.INSTRUMENT, "no request was measured", offered)
    table = offered.samples.measured
    table = table.where(table.column("outcome") == "ok")
    if not len(table):
        return _unknown(Reason.INSTRUMENT, f"no request was ok: {dict(offered.counters.outcomes)}", offered)
    ids: list[Any] = table.column("request_id").tolist()
    missing = sum(request_id not in stamps for request_id in ids)
    if missing:
        return _unknown(Reason.BLANK, f"{missing} of {len(ids)} requests have no stamp", offered)
    true_ms = (np.array([stamps[request_id] for request_id in ids]) - table.column("sent_ns")) / 1e6
    errors_ms = table.column("ttft_sent_ms") - true_ms
    return InstrumentError(
        errors_ms=errors_ms, lag_ms=table.column("schedule_lag_ms"), count=len(ids), offered=offered
    )


def _unknown(reason: Reason, detail: str, offered: OfferedLoad | None = None) -> InstrumentError:
    empty = np.zeros(0)
    return InstrumentError(
        errors_ms=empty, lag_ms=empty, count=0, offered=offered, reason=reason, detail=detail
    )
