"""`fio --output-format=json`: bytes that were read in a second, of one job."""

from __future__ import annotations

from rackgate.probes.json_text import field, number, one_object
from rackgate.probes.probe import Asked, BadOutput, Value


def values(text: str, asked: Asked) -> list[Value]:
    """Return `read` (GB/s) of all jobs together; a job with an error or without a byte is no result."""
    del asked
    jobs = field(one_object(text), "jobs")
    if not jobs:
        raise BadOutput("no job ran")
    for job in jobs:
        if field(job, "error") != 0:
            raise BadOutput(f"job {field(job, 'jobname')} ended with error {job['error']}")
        if number(field(job, "read", "total_ios"), "total_ios") <= 0:
            raise BadOutput(f"job {field(job, 'jobname')} read nothing")
    speed = sum(number(field(job, "read", "bw_bytes"), "bw_bytes") for job in jobs) / 1e9
    count = sum(int(job["read"]["total_ios"]) for job in jobs)
    detail = f"{len(jobs)} job(s), {count} reads in {max(job['read']['runtime'] for job in jobs) / 1e3:g} s"
    return [Value(name="read", entity="node", value=speed, count=count, detail=detail)]
