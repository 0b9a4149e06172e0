"""A target on paper."""

import pytest

from rackgate.nouns.node import Card, Node
from rackgate.nouns.target import EngineSpec, Gateway, Member, Target


@pytest.fixture
def rack():
    """Make a target of so many nodes and cards, one engine on each card (or on so many)."""

    def rack(nodes=2, cards=2, *, per_engine=1, gateway=True, **facts):
        made = tuple(
            Node(
                name=f"node{node}",
                cards=tuple(
                    Card(name=f"node{node}/gpu{index}", node=f"node{node}", index=index)
                    for index in range(cards)
                ),
            )
            for node in range(1, nodes + 1)
        )
        engines = tuple(
            EngineSpec(
                name=f"{node.name}-engine{first}",
                launcher="remote",
                model="m",
                url="http://127.0.0.1:9",
                members=(
                    Member(
                        node=node.name,
                        cards=tuple(card.name for card in node.cards[first : first + per_engine]),
                    ),
                ),
            )
            for node in made
            for first in range(0, cards, per_engine)
        )
        known = {"name": "lab", "model": "m", "grade": "accelerator", "may_break": ("engine",)}
        front = Gateway(url="http://127.0.0.1:8") if gateway else None
        return Target(nodes=made, engines=engines, gateway=front, **{**known, **facts})

    return rack
