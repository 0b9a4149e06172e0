"""`fio --output-format=json`: read throughput."""

from __future__ import annotations

from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, number, one_object


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `read` (GB/s) of all jobs; raises `BadOutput` for a job with an error or without a read."""
    del node
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
