"""docs/probes.md says what the code says."""

import re
import tomllib
from pathlib import Path

from rackgate.config.acceptance_file import load_acceptance
from rackgate.config.probe_tables import ProbeTable
from rackgate.probes.tools import tools

TEXT = (Path(__file__).parents[2] / "docs" / "probes.md").read_text()


def test_every_key_and_every_tool_stands_on_the_page():
    keys = set(ProbeTable.model_fields) - {"reason"}
    assert set() == {key for key in keys if f"| `{key}` |" not in TEXT}
    assert set() == {name for name in tools() if name != "site" and f"| `{name}` |" not in TEXT}


def test_what_the_page_shows_is_a_whole_acceptance_file(tmp_path, metrics):
    blocks = re.findall(r"(?ms)^```toml\n(.*?)^```", TEXT)
    assert blocks
    for number, block in enumerate(blocks):
        tomllib.loads(block)
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        load_acceptance(file, "signoff", metrics=metrics, target=None)


def test_the_page_says_which_profile_asks_what(metrics):
    asked = {}
    for profile in ("smoke", "ci", "golive", "signoff"):
        agreed = load_acceptance(None, profile, metrics=metrics, target=None)
        asked[profile] = {row.metric.split(".")[1] for row in agreed.slos if row.metric.startswith("probe.")}
    assert {"dcgm_quick"} == asked["smoke"]
    ci = {"dcgm_medium", "nvbandwidth", "all_reduce", "compute", "disk_read", "rvs"}
    network = {"rdma_bandwidth", "rdma_latency", "gdr_bandwidth"}
    nodes = {"all_reduce_pair", "all_reduce_nodes", "all_gather_nodes", "alltoall_nodes"}
    assert ci == asked["ci"] - asked["smoke"]
    assert {"dcgm_long"} | network | nodes == asked["golive"] - asked["ci"]
    assert {"dcgm_burn", "agfhc"} == asked["signoff"] - asked["golive"]
