"""The chain of an unmet check, from the outside in: what is known of each layer, and what to do there."""

from __future__ import annotations

from dataclasses import dataclass

from rackgate.diagnosis.lookup import diagnose
from rackgate.known_failures.signatures import Diagnosis
from rackgate.nouns.measurement import Layer, Measurement, Reason
from rackgate.nouns.verdict import Judgement, Verdict

_MOST = 8

_OF_THE_WAY = {
    Reason.INSTRUMENT: Layer.CLIENT,
    Reason.TOO_FEW: Layer.CLIENT,
    Reason.NOT_CONFIGURED: Layer.CLIENT,
    Reason.EXCLUDED: Layer.CLIENT,
    Reason.UNREACHABLE: Layer.NETWORK,
    Reason.TIMEOUT: Layer.NETWORK,
}
"""Where it lies that there is no value, if not in what the row is about."""

_FIRST_LOOKS = {
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
    """What is known of one layer: a known failure by its `name`, or what the row itself saw (no name)."""

    layer: Layer
    meaning: str
    seen: str
    next_steps: tuple[str, ...]
    name: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The links of an unmet check, the outermost first; `leading` is the known failure behind the others.

    `layer` is that of the leading one, without any known failure the row's own.
    """

    layer: Layer
    links: tuple[Link, ...]
    leading: Link | None = None

    def next_steps(self, hint: str) -> tuple[str, ...]:
        """Return what to do, in order: the leading failure's first step, the row's hint; never nothing."""
        first = self.leading.next_steps[:1] if self.leading else ()
        return tuple(dict.fromkeys(step for step in (*first, hint) if step)) or (_FIRST_LOOKS[self.layer],)


def chain_of(measurement: Measurement, judgement: Judgement, layer: Layer, hint: str) -> Chain | None:
    """Return the chain of a judged measurement, None where it holds. `layer` is the row's own."""
    if judgement.verdict is Verdict.PASS:
        return None
    seen = judgement.detail or measurement.detail
    known = [_link(one) for one in diagnose(seen, symptoms=measurement.symptoms, limit=_MOST)]
    own = _OF_THE_WAY.get(judgement.reason, layer) if judgement.reason else layer
    leading = known[0] if known else None
    chain = Chain(layer=leading.layer if leading else own, links=(), leading=leading)
    if all(one.layer is not own for one in known):
        what = f"no value: {judgement.reason}" if judgement.reason else "the row's limit is not held"
        known.append(Link(layer=own, meaning=what, seen=seen, next_steps=chain.next_steps(hint)[-1:]))
    links = tuple(sorted(known, key=lambda link: link.layer.depth))
    return Chain(layer=chain.layer, links=links, leading=leading)


def _link(found: Diagnosis) -> Link:
    return Link(
        layer=found.signature.layer,
        name=found.signature.name,
        meaning=found.meaning,
        seen=found.seen,
        next_steps=found.next_steps,
        source=found.signature.source,
    )
