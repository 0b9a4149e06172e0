"""What extensions import: metrics, launchers, faults, targets, protocols and tests of your own.

docs/extending.md has an example of each. Names that are not listed here may move between versions.
"""

from rackgate.engines.protocols.answer import Answer, Ending
from rackgate.engines.protocols.protocol import AnswerReader, ChatProtocol, ChatRequest, Dialect
from rackgate.engines.readiness import gives_token, wait_for_token
from rackgate.metrics.metric import MeasureFunction
from rackgate.metrics.observation import LoadRun, Observation
from rackgate.metrics.requests.chosen import Chosen, chosen_samples
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.engine import Engine, Killable, Launcher, LaunchFailed, Partitionable, Pausable
from rackgate.nouns.fault import Fault, FaultTimeline
from rackgate.nouns.load import Arrival, Limits, Load
from rackgate.nouns.measurement import Bounds, Layer, Measurement, Reason, missing, truth
from rackgate.nouns.node import Card, Expect, Node, NodeAccess
from rackgate.nouns.route import Route
from rackgate.nouns.sample import Outcome, Sample
from rackgate.nouns.slo import Check, Op, Scope, Severity, Slo
from rackgate.nouns.target import EngineSpec, Gateway, Member, Target
from rackgate.nouns.verdict import Verdict
from rackgate.run.run import Run
from rackgate.stages.site import Site

__all__ = [
    "Answer",
    "AnswerReader",
    "Arrival",
    "Bounds",
    "Card",
    "ChatProtocol",
    "ChatRequest",
    "Check",
    "Chosen",
    "Dialect",
    "Ending",
    "Endpoint",
    "Engine",
    "EngineSpec",
    "Expect",
    "Fault",
    "FaultTimeline",
    "Gateway",
    "Killable",
    "LaunchFailed",
    "Launcher",
    "Layer",
    "Limits",
    "Load",
    "LoadRun",
    "MeasureFunction",
    "Measurement",
    "Member",
    "Node",
    "NodeAccess",
    "Observation",
    "Op",
    "Outcome",
    "Partitionable",
    "Pausable",
    "Reason",
    "Route",
    "Run",
    "Sample",
    "Scope",
    "Severity",
    "Site",
    "Slo",
    "Target",
    "Verdict",
    "chosen_samples",
    "gives_token",
    "missing",
    "truth",
    "wait_for_token",
]
