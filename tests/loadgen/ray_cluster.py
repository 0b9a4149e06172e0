"""A Ray cluster of several nodes on this machine's loopback, told on standard input what to do.

`clock NAME` adds a node whose monotonic clock is 1,000 s ahead, in a time namespace; without the right to
make one it is an ordinary node, and the answer is 0.
"""

import ctypes
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}

from ray.cluster_utils import Cluster

AHEAD_S = 1000
_CLONE_NEWTIME = 0x80
_SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def _own_clock():
    """Let children have a clock of their own; return how far it is ahead, in s."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWTIME):
        return 0
    Path("/proc/self/timens_offsets").write_text(f"monotonic {AHEAD_S} 0\n")
    return AHEAD_S


def main():
    with tempfile.TemporaryDirectory(prefix="rg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder  # here Ray notes its address, in a folder that it does not make
        (Path(folder) / "ray").mkdir()
        _serve(folder)  # a short path: Ray makes sockets in it


def _serve(folder):
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray tells a lot
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "include_dashboard": False,
            "temp_dir": folder,
            "node_ip_address": "127.0.1.1",
            "node_name": "head",
            **_SMALL,
        },
    )
    print(cluster.gcs_address, file=said, flush=True)
    nodes = {}
    for line in sys.stdin:
        word, name = line.split()
        ahead_s = _own_clock() if word == "clock" else 0
        if word == "kill":
            cluster.remove_node(nodes[name], allow_graceful=False)
        else:
            address = f"127.0.1.{len(nodes) + 2}"
            nodes[name] = cluster.add_node(node_ip_address=address, node_name=name, **_SMALL)
        print(ahead_s, file=said, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
