"""The pages about loads name every key and every protocol that there is."""

from pathlib import Path

import pytest

from rackgate.config.acceptance_file import workloads
from rackgate.config.acceptance_tables import LoadTable
from rackgate.engines.protocols.protocol import PROTOCOLS
from rackgate.loadgen.requests.trace import TRACE_FORMATS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "loads.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "names", [set(LoadTable.model_fields) - {"reason"}, PROTOCOLS, TRACE_FORMATS, workloads()]
)
def test_every_name_stands_on_the_page(names):
    assert [] == [name for name in names if f"`{name}`" not in TEXT]


def test_the_measured_table_names_every_client_of_the_benchmark():
    table = (DOCS / "performance.md").read_text(encoding="utf-8")
    for client in ("rackgate", "asyncio.Protocol", "aiohttp", "httpx", "vllm bench serve", "AIPerf"):
        assert client in table
