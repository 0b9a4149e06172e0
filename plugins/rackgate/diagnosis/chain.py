"""The causal chain of an unmet check: findings by layer, from the client to the hardware, with next steps."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.diagnosis.lookup import diagnose
from rackgate.known_failures.signatures import Diagnosis
from rackgate.nouns.measurement import Layer, Measurement, Reason
from rackgate.nouns.verdict import Judgement, Verdict

_MOST_DIAGNOSES = 8

_LAYER_OF_REASON = {
    Reason.INSTRUMENT: Layer.CLIENT,
    Reason.TOO_FEW: Layer.CLIENT,
    Reason.NOT_CONFIGURED: Layer.CLIENT,
    Reason.EXCLUDED: Layer.CLIENT,
    Reason.UNREACHABLE: Layer.NETWORK,
    Reason.TIMEOUT: Layer.NETWORK,
}
"""The layer of a missing value where that is not the layer of the row."""

_FIRST_STEPS = {
    Layer.CLIENT: "Look at the machine that measures first: its cores, its files, what else runs on it.",
    Layer.NETWORK: "Look at the way there first: address, port, firewall, link.",
    Layer.SERVICE: "Look at the engine first: its log, its queue, what it was started with.",
    Layer.MODEL: "Compare the model that was asked for with the one that is served.",
    Layer.CONTAINER: "Look at the container first: its log, its devices, its limits.",
    Layer.DRIVER: "Look at the node's driver first: module, library, services.",
    Layer.HARDWARE: "Look at the card first: `nvidia-smi -q` and the kernel log, beside a neighbour's.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A finding in one layer: a known failure with its `name`, or without a name the row's own value."""

    layer: Layer
    meaning: str
    seen: str
    next_steps: tuple[str, ...]
    name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The links of an unmet check, outermost first; `leading` is the known failure that explains the others.

    `layer` is the layer of the leading link, or the row's own where no failure is known.
    """

    layer: Layer
    links: tuple[Link, ...]
    leading: Link | None = None

    def next_steps(self, hint: str) -> tuple[str, ...]:
        """Return the next steps in order: the leading failure's first, then the row's hint; never empty."""
        first = self.leading.next_steps[:1] if self.leading else ()
        return tuple(dict.fromkeys(step for step in (*first, hint) if step)) or (_FIRST_STEPS[self.layer],)


def chain_of(measurement: Measurement, judgement: Judgement, layer: Layer, hint: str) -> Chain | None:
    """Return the chain of a judged measurement, None for PASS. `layer` is the row's own."""
    if judgement.verdict is Verdict.PASS:
        return None
    seen = judgement.detail or measurement.detail
    known = [
        _link(diagnosis) for diagnosis in diagnose(seen, symptoms=measurement.symptoms, limit=_MOST_DIAGNOSES)
    ]
    own = _LAYER_OF_REASON.get(judgement.reason, layer) if judgement.reason else layer
    leading = known[0] if known else None
    chain = Chain(layer=leading.layer if leading else own, links=(), leading=leading)
    if all(link.layer is not own for link in known):
        meaning = f"no value: {judgement.reason}" if judgement.reason else "the row's limit is not held"
        known.append(Link(layer=own, meaning=meaning, seen=seen, next_steps=chain.next_steps(hint)[-1:]))
    links = tuple(sorted(known, key=lambda link: link.layer.depth))
    return Chain(layer=chain.layer, links=links, leading=leading)


def _link(diagnosis: Diagnosis) -> Link:
    return Link(
        layer=diagnosis.signature.layer,
        name=diagnosis.signature.name,
        meaning=diagnosis.meaning,
        seen=diagnosis.seen,
        next_steps=diagnosis.next_steps,
        source=diagnosis.signature.source,
    )
