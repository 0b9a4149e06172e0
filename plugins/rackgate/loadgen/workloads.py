"""Classes of work as loads that are ready to offer: lengths as such users bring them, arrivals left open."""

from __future__ import annotations

from rackgate.load import Limits, Load, Shape, Spread

__all__ = ["WORKLOADS"]

WORKLOADS = {
    load.name: load
    for load in (
        Load(
            name="assistant",
            workload="assistant",
            prompt_tokens=512,
            prompt_spread=Spread(shape=Shape.LOGNORMAL, deviation=400.0, least=16, most=4096),
            output_tokens=200,
            output_spread=Spread(shape=Shape.LOGNORMAL, deviation=150.0, least=8, most=1024),
            concurrency=8,
        ),
        Load(
            name="batch",
            workload="batch",
            prompt_tokens=1024,
            prompt_spread=Spread(shape=Shape.NORMAL, deviation=128.0, least=256, most=2048),
            output_tokens=256,
            concurrency=32,
            limits=Limits(first_token_s=300.0, stall_s=120.0, total_s=1800.0),
        ),
        Load(
            name="long_context",
            workload="long_context",
            prompt_tokens=32768,
            prompt_spread=Spread(shape=Shape.UNIFORM, deviation=8192.0, least=1024, most=49152),
            output_tokens=256,
            concurrency=2,
            limits=Limits(first_token_s=120.0, stall_s=60.0, total_s=900.0),
        ),
        Load(
            name="audio_video",
            workload="audio_video",
            prompt_tokens=4096,
            prompt_spread=Spread(shape=Shape.LOGNORMAL, deviation=3000.0, least=512, most=16384),
            output_tokens=128,
            concurrency=4,
            limits=Limits(first_token_s=60.0, stall_s=30.0, total_s=600.0),
        ),
        Load(
            name="embedding",
            workload="embedding",
            prompt_tokens=256,
            prompt_spread=Spread(shape=Shape.LOGNORMAL, deviation=200.0, least=8, most=2048),
            output_tokens=1,
            concurrency=32,
        ),
    )
}
"""By class. Audio and video are offered as text of the length that their tokens have, which is what the
engine's scheduler and memory see; the encoder is not exercised. Embeddings go to the protocol
`openai_embeddings`."""
