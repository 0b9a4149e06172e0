"""Lines of kernel logs in all forms: text, time and author."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

_LEVEL = re.compile(r"^<\d{1,3}>|^(?:kern|user|daemon|syslog|local\d)\s*:\s*\w+\s*:\s*")
_KMSG = re.compile(r"^(\d+),(\d+),(\d+),([^;]*);(.*)$", re.DOTALL)
_BOOT = re.compile(r"^\[\s*(\d+)\.(\d{1,6})\]\s?")
_CALLER = re.compile(r"^\[\s*[TC]\d+\]\s?")
_CTIME = re.compile(r"^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3}\s+\d+ [\d:]{8} \d{4})\]\s?")
_ISO = re.compile(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?\]?:?\s")
_SYSLOG = re.compile(r"^([A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d)\s+(\S+)\s+")
_HOST_ISO = re.compile(r"^(\S+): (?:kern: \w+: )(\[.*)$", re.DOTALL)
_TAG = re.compile(r"^([\w./-]+)(?:\[\d+\])?:\s")
_HOST_KERNEL = re.compile(r"^(\S+) (?=[\w./-]+(?:\[\d+\])?:\s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`boot_us` is the kernel's own clock since boot, `wall_s` seconds since 1970 (UTC).

    `from_kernel` is False for what a program wrote under the kernel's name, None where the form of the
    log does not tell.
    """

    text: str
    boot_us: int | None = None
    wall_s: float | None = None
    from_kernel: bool | None = None
    host: str | None = None


def parse_lines(
    raw: str | Iterable[str], *, now: datetime | None = None, utc_offset_s: float = 0.0
) -> Iterator[LogLine]:
    """Yield every line of a log of any form; lines folded into one by `#012` become several.

    `utc_offset_s` belongs to stamps without a zone; a year that is not written is the latest that lies
    not after `now`.
    """
    for line in raw.splitlines() if isinstance(raw, str) else raw:
        parsed = parse_line(line, now=now, utc_offset_s=utc_offset_s)
        for part in parsed.text.split("#012"):
            if part.strip():
                yield replace(parsed, text=part.strip())


def parse_line(line: str, *, now: datetime | None = None, utc_offset_s: float = 0.0) -> LogLine:
    """Return one line without its prefix, whatever that is."""
    text = line.rstrip("\n")
    if text.startswith("{"):
        found = _journal(text)
        if found is not None:
            return found
    record = _KMSG.match(text)
    if record:
        facility = int(record[1]) >> 3
        return LogLine(text=record[5], boot_us=int(record[3]), from_kernel=facility == 0)
    hosted = _HOST_ISO.match(text)
    host = None
    if hosted:
        host, text = hosted[1], hosted[2]
    syslog = _SYSLOG.match(text)
    if syslog:
        wall_s = _yearless(syslog[1], now or datetime.now(UTC), utc_offset_s)
        return _tagged(text[syslog.end() :], wall_s, syslog[2])
    return _bracketed(text, host, utc_offset_s)


def _bracketed(text: str, host: str | None, utc_offset_s: float) -> LogLine:
    """Read dmesg's own forms: seconds since boot, `-T`, `--time-format iso`, each perhaps with `-x`."""
    text = _LEVEL.sub("", text, count=1)
    wall_s, boot_us = None, None
    iso, ctime = _ISO.match(text), _CTIME.match(text)
    if iso:
        wall_s = _iso(iso, utc_offset_s)
        rest = text[iso.end() :].strip()
        named = _HOST_KERNEL.match(rest)
        if named and not rest.startswith("NVRM:"):
            return _tagged(rest[named.end() :], wall_s, named[1])
        text = rest
    elif ctime:
        moment = datetime.strptime(" ".join(ctime[1].split()), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        wall_s = moment.timestamp() - utc_offset_s
        text = text[ctime.end() :]
    boot = _BOOT.match(text)
    if boot:
        boot_us = int(boot[1]) * 1_000_000 + int(boot[2].ljust(6, "0"))
        text = text[boot.end() :]
    text = _CALLER.sub("", text, count=1)
    return LogLine(text=text.strip(), boot_us=boot_us, wall_s=wall_s, host=host)


def _tagged(rest: str, wall_s: float | None, host: str | None) -> LogLine:
    tag = _TAG.match(rest)
    if tag is None:
        return LogLine(text=rest, wall_s=wall_s, host=host)
    text = rest[tag.end() :]
    boot = _BOOT.match(text)
    boot_us = int(boot[1]) * 1_000_000 + int(boot[2].ljust(6, "0")) if boot else None
    from_kernel = None if tag[1] == "kernel" else False
    return LogLine(
        text=text[boot.end() :] if boot else text,
        boot_us=boot_us,
        wall_s=wall_s,
        from_kernel=from_kernel,
        host=host,
    )


def _journal(text: str) -> LogLine | None:
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    message = entry.get("MESSAGE", "")
    if isinstance(message, list):  # journald writes bytes that are no UTF-8 as numbers
        message = bytes(one for one in message if isinstance(one, int)).decode("utf-8", "replace")
    inner = _BOOT.match(str(message))
    boot = entry.get("_SOURCE_MONOTONIC_TIMESTAMP", entry.get("__MONOTONIC_TIMESTAMP"))
    wall = entry.get("_SOURCE_REALTIME_TIMESTAMP", entry.get("__REALTIME_TIMESTAMP"))
    return LogLine(
        text=str(message)[inner.end() :] if inner else str(message),
        boot_us=None if boot is None else int(boot),
        wall_s=None if wall is None else int(wall) / 1e6,
        from_kernel=entry.get("_TRANSPORT") == "kernel",
        host=entry.get("_HOSTNAME"),
    )


def _iso(found: re.Match[str], utc_offset_s: float) -> float:
    moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()
    fraction = float(f"0.{found[2]}") if found[2] else 0.0
    zone = found[3]
    if zone is None:
        offset_s = utc_offset_s
    elif zone == "Z":
        offset_s = 0.0
    else:
        sign = -1 if zone[0] == "-" else 1
        digits = zone[1:].replace(":", "")
        offset_s = sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
    return moment + fraction - offset_s


def _yearless(stamp: str, now: datetime, utc_offset_s: float) -> float:
    """Take the latest year in which the moment is not more than a day after now."""
    for year in (now.year + 1, now.year, now.year - 1, now.year - 4):
        try:
            text = f"{year} " + " ".join(stamp.split())
            moment = datetime.strptime(text, "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:  # 29 February of another year
            continue
        if moment - timedelta(seconds=utc_offset_s) <= now + timedelta(days=1):
            return moment.timestamp() - utc_offset_s
    return now.timestamp()


def boot_to_monotonic_ns(line: LogLine, wall_to_monotonic_ns: int) -> int | None:
    """Return the line's moment on CLOCK_MONOTONIC; the kernel's stamps are that clock within ms.

    `wall_to_monotonic_ns` is monotonic minus wall time of the machine that wrote the line.
    """
    if line.boot_us is not None:
        return line.boot_us * 1000
    if line.wall_s is not None:
        return round(line.wall_s * 1e9) + wall_to_monotonic_ns
    return None
