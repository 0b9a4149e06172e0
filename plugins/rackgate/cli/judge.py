"""`rackgate judge`: judge a finished run again, with no rack, or what another tool measured."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackgate.metrics.registry import Registry
    from rackgate.rejudge.judging import Rejudgement


_ACCEPTED = ("PASS", "WARN", "declared", "not_assessed")


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "judge", help="judge a finished run, or results of another tool, by an acceptance file",
        description=__doc__,
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("run_folder", type=Path, nargs="?", metavar="RUN", help="the run folder")
    what.add_argument(
        "--from", dest="source", type=Path, metavar="FILE",
        help="JSON of AIPerf, GuideLLM or vllm bench serve",
    )  # fmt: skip
    parser.add_argument("--slo", type=Path, metavar="FILE", help="acceptance file on top of the defaults")
    parser.add_argument("--profile", help="default: the run's own; smoke for --from")
    parser.add_argument("--view", default="judged", help="written to RUN/views/VIEW (default: judged)")
    parser.add_argument("--load", metavar="NAME", help="with --from: only rows of this load")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from rackgate.cli.judge_foreign import judge_foreign
    from rackgate.config.problems import ConfigError
    from rackgate.loadgen.results.foreign import ForeignError
    from rackgate.rejudge.finished_run import NoEvidence

    try:
        return judge_foreign(options) if options.source is not None else _judge_run(options)
    except (ForeignError, ConfigError, NoEvidence) as error:
        sys.stderr.write("".join(f"rackgate judge: {line}\n" for line in str(error).splitlines()))
        return 4


def _judge_run(options: argparse.Namespace) -> int:
    from rackgate.cli.report import write_views
    from rackgate.config.acceptance_file import load_acceptance
    from rackgate.config.problems import ConfigError
    from rackgate.rejudge.finished_run import read_finished
    from rackgate.rejudge.judging import rejudge

    if options.view == "default":
        raise ConfigError(["--view default: that is the run's own judgement"])
    finished = read_finished(options.run_folder)
    profile = options.profile or str(finished.run["profile"])
    registry = _registry()
    acceptance = load_acceptance(options.slo, profile, metrics=registry.metrics, target=finished.target)
    view = options.run_folder / "views" / options.view
    # Without another file or profile, rows that were not asked in the run are left out.
    only_asked = options.slo is None and options.profile in (None, finished.run["profile"])
    judged = rejudge(finished, acceptance, registry, view, only_asked=only_asked)
    paths = write_views(options.run_folder, options.view)
    if options.json:
        sys.stdout.write(json.dumps(_plain(judged, paths), indent=2, ensure_ascii=False) + "\n")
    else:
        same = acceptance.digest == finished.run["acceptance"]["digest"]
        sys.stdout.write(_text(judged, paths, same=same))
    return int(judged.end["exit_status"])


def _registry() -> Registry:
    """Return the shipped metrics and those of installed plugins; a conftest's metrics are not known here."""
    from rackgate.metrics.shipped import shipped_registry

    registry = shipped_registry()
    for point in entry_points(group="pytest11"):
        needs = (point.dist.requires if point.dist else None) or ()
        if any(need.startswith("pytest-rackgate") for need in needs):
            register = getattr(point.load(), "pytest_rack_metrics", None)
            if register is not None:
                register(config=None, register=registry.add_metric)
    return registry


def _plain(judged: Rejudgement, paths: list[Path]) -> dict[str, Any]:
    return {
        **{name: judged.end[name] for name in ("headline", "verdict", "accepted", "scope_text", "counts")},
        "verdicts": judged.verdicts,
        "left_out": judged.left_out,
        "changed": {check: {"was": was, "is": now} for check, (was, now) in judged.changed.items()},
        "files": [str(path) for path in paths],
    }


def _text(judged: Rejudgement, paths: list[Path], *, same: bool) -> str:
    lines = [message for check, message in judged.messages.items() if judged.verdicts[check] not in _ACCEPTED]
    lines += [f"{check}: was {was}, is {now}" for check, (was, now) in judged.changed.items()]
    whose = "the acceptance of the run" if same else "another acceptance than the run's"
    if judged.left_out:
        lines.append(f"{judged.left_out} checks of this version were not asked in the run, and are left out")
    lines += [judged.end["headline"], f"{judged.end['scope_text']}; judged by {whose}"]
    return "\n".join([*lines, *map(str, paths)]) + "\n"
