"""What a load that has ended keeps in memory does not grow with what its requests said."""

import subprocess
import sys

import numpy as np
import pytest

from rackgate.loadgen.results.sample_file import read_samples, write_samples
from rackgate.loadgen.results.sample_table import SampleTable
from rackgate.nouns.load import Origin
from rackgate.nouns.sample import Outcome, Sample

pytestmark = pytest.mark.slow

MERGED = """
import re, sys
from pathlib import Path
from rackgate.nouns.load import Load
from rackgate.loadgen.running import start_load
from rackgate.nouns.endpoint import Endpoint
from rackgate.loadgen.results.columns import CACHED
from rackgate.loadgen.results.sample_table import SampleTable

url, folder = sys.argv[1:]
load = Load(name="l", prompt_tokens=9, output_tokens=8, concurrency=8, looks=(64,), warmup_requests=0,
    workers=2)

def most_bytes():
    # Not ru_maxrss: that begins with what the process had that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

def merged(name, times):
    path = Path(folder) / name
    endpoint = Endpoint(entity="e", url=url, model="m")
    with start_load(load, [endpoint], label="t", samples_path=path, seed=1) as it:
        assert it.wait(60)
        for spool in path.parent.glob(f"{name}.jsonl.?"):
            spool.write_bytes(spool.read_bytes() * times)
        progress = it.finished_count
        offered = it.finish()
    assert progress == len(offered.samples) == 64 * times, offered.detail
    return offered.samples

def touched(table):
    for column in CACHED:
        table._kept(column)
    return table

few = touched(SampleTable.concat([merged("a", 1024).measured, merged("b", 64).measured]))
before = most_bytes()
many = touched(SampleTable.concat([merged("c", 2048).measured, merged("d", 1024).measured]))
print((most_bytes() - before) / len(many))
"""


def test_a_finished_request_takes_less_than_200_bytes_until_the_looks_are_joined(reference, tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", MERGED, reference, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert 0 == said.returncode, said.stderr
    assert 0 < float(said.stdout) < 200


def test_joined_tables_leave_their_columns_in_their_files(tmp_path):
    tables = []
    for name in "ab":
        samples = [
            Sample(
                request_id=f"{name}{n}", engine="e", load="l", label="t", outcome=Outcome.OK, scheduled_ns=n
            )
            for n in range(50)
        ]
        write_samples(SampleTable.from_samples(samples, Origin.SENT), tmp_path / name)
        tables.append(read_samples(tmp_path / name))
    joined = SampleTable.concat(tables)
    expected = np.concatenate([np.arange(50), np.arange(50)]).tolist()
    assert expected == joined.scheduled_ns.tolist()
    assert [] == [name for table in tables for name in table._columns]
    assert expected[:50] == tables[0].scheduled_ns.tolist()
