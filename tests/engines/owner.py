"""Launch the engine that the first argument describes, tell its facts, and wait to be killed."""

import json
import sys

from rackgate.engines.launchers import register_launchers
from rackgate.nouns.target import EngineSpec


def main():
    launchers = {}
    register_launchers(lambda name, launcher, _check: launchers.__setitem__(name, launcher))
    spec = EngineSpec(**json.loads(sys.argv[1]))
    print(end="", flush=True)
    with launchers[spec.launcher](spec, run_id="run-of-owner", log_dir=sys.argv[2]) as engine:
        facts = {"url": engine.url}
        if spec.launcher == "process":
            facts |= {"pid": engine.handle.pid, "keeper": engine.handle.keeper_pid}
        else:
            facts["ident"] = engine.handle.ident
        print(json.dumps(facts), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
