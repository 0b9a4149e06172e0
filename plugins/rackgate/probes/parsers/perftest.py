"""`--out_json` of perftest: `ib_write_bw` with `--report_gbits`, or `ib_write_lat`."""

from __future__ import annotations

from rackgate.probes.probe import BadOutput, ProbedNode, Value
from rackgate.probes.strict_json import field, number, one_object


def values(text: str, node: ProbedNode) -> list[Value]:
    """Return `bandwidth` (Gb/s, average) or `latency` (us, 99th percentile) of the one size that ran."""
    del node
    found = one_object(text)
    test, results = str(field(found, "test_info", "test")), field(found, "results")
    detail = f"{test}, {field(results, 'MsgSize')} bytes on {field(found, 'test_info', 'Device')}"
    count = int(number(field(results, "n_iterations"), "n_iterations"))
    if "BW_average" in results:
        name, value = "bandwidth", number(results["BW_average"], "BW_average")
    elif "percentile_99" in results:
        name, value = "latency", number(results["percentile_99"], "percentile_99")
    else:
        raise BadOutput("of no known shape: neither results.BW_average nor results.percentile_99")
    if value <= 0:
        raise BadOutput(f"{name} is {value:g}: nothing was sent")
    return [Value(name=name, entity="node", value=value, count=count, detail=detail)]
