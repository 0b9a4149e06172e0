"""Read speed of the model storage: past the cache, bounded in size and time, read-only."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from rackgate.hosts.runner import Command, Ran, Runner
from rackgate.nouns.measurement import Measurement, ProbeResults, Reason
from rackgate.preflight.host_metrics import measured, not_measured, of_group

_LEAST_MIB = 64
_LIMIT_S = 5
_DEPTH, _ENOUGH = 12, 200  # of a tree of millions of files
_BLOCK_MIB, _BLOCKS = 4, 256
_SMALL_BYTES, _SMALL_READS = 4096, 256
_COPIED = re.compile(r"^(\d+) bytes.* copied, ([\d.e-]+) s", re.MULTILINE)


def probe_storage(node: str, runner: Runner, path: str, deadline_s: float = 10.0) -> ProbeResults:
    """Return throughput and latency of reads below `path`: by fio where it is installed, else by dd.

    The file is the largest of the first 200 of 64 MiB and more that are found within 5 s.

    Both read an existing file directly, at most 1 GiB and 5 s. Where the file system knows no direct
    reads the file is dropped from the cache first.
    """
    found = runner.run(_largest(path), deadline_s)
    size, _, file = found.text.strip().partition(" ")
    if not size.isdigit() or not file:
        text = found.detail or f"no file of {_LEAST_MIB} MiB and more is below {path}"
        reason = found.reason or Reason.ABSENT
        return {(name, node): not_measured(name, node, reason, text) for name in of_group("storage")}
    figures = _by_fio(runner, file, deadline_s) or _by_dd(runner, file, deadline_s)
    return {(name, node): _measurement(name, node, figure, file) for name, figure in figures.items()}


def _largest(path: str) -> Command:
    where = shlex.quote(path)
    find = f"find -L {where} -maxdepth {_DEPTH} -type f -size +{_LEAST_MIB - 1}M -printf '%s %p\\n'"
    line = f"timeout {_LIMIT_S} {find} | head -n {_ENOUGH} | sort -rn | head -n 1"
    return Command(argv=("sh", "-c", line), grant=f"read access to {path}", known_as="find the largest file")


_Figures = dict[str, tuple[float | None, str, Ran]]
"""By metric: its value, how it was measured, and what the command said."""


def _by_fio(runner: Runner, file: str, deadline_s: float) -> _Figures | None:
    """Return what fio measured; None where it is not installed."""
    common = ("--direct=1", "--readonly", "--ioengine=psync", f"--runtime={_LIMIT_S}", "--output-format=json")
    read = runner.run(
        Command(
            argv=(
                *("fio", "--name=read", f"--filename={file}", "--rw=read", f"--bs={_BLOCK_MIB}M"),
                *(f"--io_size={_BLOCK_MIB * _BLOCKS}M", *common),
            )
        ),
        deadline_s,
    )
    if read.reason is Reason.TOOL_MISSING:
        return None
    small = runner.run(
        Command(
            argv=(
                *("fio", "--name=small", f"--filename={file}", "--rw=randread", f"--bs={_SMALL_BYTES}"),
                *(f"--io_size={_SMALL_BYTES * _SMALL_READS}", *common),
            )
        ),
        deadline_s,
    )
    rate, latency = _job(read).get("bw_bytes"), (_job(small).get("clat_ns") or {}).get("mean")
    return {
        "storage_read_mib_s": (rate / 2**20 if rate else None, "fio, direct", read),
        "storage_latency_ms": (latency / 1e6 if latency else None, "fio, direct", small),
    }


def _job(ran: Ran) -> dict[str, Any]:
    try:
        job = json.loads(ran.text)["jobs"][0]["read"]
    except (ValueError, KeyError, IndexError, TypeError):
        return {}
    return job if isinstance(job, dict) and job.get("total_ios", 1) else {}


def _by_dd(runner: Runner, file: str, deadline_s: float) -> _Figures:
    how = "dd, direct"
    read = runner.run(_dd(file, f"{_BLOCK_MIB}M", _BLOCKS, "direct"), deadline_s)
    if "nvalid argument" in read.error + read.text:
        how = "dd, dropped from the cache before"
        runner.run(_dd(file, "4M", 0, "nocache"), deadline_s)
        read = runner.run(_dd(file, f"{_BLOCK_MIB}M", _BLOCKS, ""), deadline_s)
        small = Ran(
            reason=Reason.UNSUPPORTED, detail="the file system knows no direct reads, and there is no fio"
        )
    else:
        small = runner.run(_dd(file, str(_SMALL_BYTES), _SMALL_READS, "direct"), deadline_s)
    moved, spent = _copied(read), _copied(small)
    return {
        "storage_read_mib_s": (moved[0] / 2**20 / moved[1] if moved else None, how, read),
        "storage_latency_ms": (1e3 * spent[1] / (spent[0] / _SMALL_BYTES) if spent else None, how, small),
    }


def _dd(file: str, block: str, count: int, flag: str) -> Command:
    flags = (f"iflag={flag}",) if flag else ()
    copy = ("dd", f"if={file}", "of=/dev/null", f"bs={block}", f"count={count}", *flags)
    # At the limit dd is interrupted, and says how far it came.
    return Command(argv=("env", "LC_ALL=C", "timeout", "-s", "INT", str(_LIMIT_S), *copy))


def _copied(ran: Ran) -> tuple[float, float] | None:
    """Return (bytes, s); None unless something was read."""
    found = _COPIED.search(ran.text + ran.error)
    moved, seconds = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    return (moved, seconds) if moved and seconds else None


def _measurement(name: str, node: str, figure: tuple[float | None, str, Ran], file: str) -> Measurement:
    value, how, ran = figure
    if value is None:
        said = ran.detail or (ran.error or ran.text).strip()[:200] or "no figure came out"
        return not_measured(name, node, ran.reason, f"{file}: {said}")
    return measured(name, node, value, f"{how}: {file}")
