"""One load after the other to the endpoint of a call of `rackgate load`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rackgate.engines.route_options import route_of

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from rackgate.loadgen import Endpoint, InstrumentError, OfferedLoad
    from rackgate.nouns.load import Load
    from rackgate.nouns.target import LoadMachines


_END_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Offers loads to one endpoint. Their prompts come from `seed`, so that no call repeats another's."""

    endpoint: Endpoint
    folder: Path
    seed: int
    machines: LoadMachines | None = None

    def offer(
        self,
        load: Load,
        *,
        label: str,
        samples: Path | None = None,
        look: int = 0,
        requests: int | None = None,
    ) -> tuple[OfferedLoad, bool]:
        """Return what was measured, with the engine's prefix-cache counters, and whether Ctrl-C ended it."""
        from rackgate.engines.metrics_page import MetricsPage
        from rackgate.loadgen import start_load
        from rackgate.loadgen.engine_counters.prefix_cache import counters_meanwhile, read_pages
        from rackgate.loadgen.progress import StreamTeller, watch

        goes = self.endpoint
        page = MetricsPage(url=f"{goes.url}/metrics", headers=goes.headers, route=goes.route)
        pages = {goes.entity: page}
        path = samples or self.folder / f"{label}.{look}.parquet"
        interrupted = False
        before = read_pages(pages)
        with start_load(
            load, [goes], label=label, samples_path=path, seed=self.seed, look=look,
            requests=requests, warmup=look == 0, machines=self.machines,
        ) as running:  # fmt: skip
            try:
                watch(running, load, StreamTeller(sys.stderr))
                offered = running.finish()
            except KeyboardInterrupt:
                interrupted = True
                running.cancel()
                offered = running.finish(load.limits.connect_s + _END_LIMIT_S)
        return replace(offered, prefix=counters_meanwhile(before, read_pages(pages))), interrupted

    def instrument(self, load: Load) -> InstrumentError:
        """Return the error of the load generator, measured with as many streams as a load has at once."""
        from rackgate.loadgen import measure_instrument
        from rackgate.loadgen.instrument.sizing import REFERENCE, sized, streams_of

        reference = sized(REFERENCE, streams_of(load, 1))
        return measure_instrument(reference, samples_path=self.folder / "reference.parquet", seed=self.seed)


def fitted(load: Load, endpoint: Endpoint) -> Load:
    """Return the load with the context that its endpoint tells. Raises `ValueError` if it cannot be offered.

    The endpoint is asked only where the load is possible without that.
    """
    from rackgate.engines.context import context_of
    from rackgate.loadgen.running import checked

    checked(load)
    if load.context_tokens is not None:
        return load
    asked = replace(endpoint, protocol=load.protocol or endpoint.protocol)
    load = replace(load, context_tokens=context_of([asked]))
    try:
        checked(load)
    except ValueError as error:
        raise ValueError(f"{error} (so says {endpoint.url}/v1/models)") from None
    return load


def endpoint_of(options: argparse.Namespace) -> Endpoint:
    """Return where the load goes. Raises `ValueError`."""
    from rackgate.engines.protocols.protocol import protocol_named
    from rackgate.loadgen import Endpoint
    from rackgate.loadgen.http.transport import Server

    Server.of(options.url)
    protocol = options.protocol or "openai"
    protocol_named(protocol)
    route = route_of(options)
    headers = dict(route.headers)
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise ValueError(f"--api-key-env: the environment variable {options.api_key_env} is not set")
        headers["Authorization"] = f"Bearer {key}"
    url = options.url.rstrip("/").removesuffix("/v1")
    return Endpoint(
        entity="endpoint", url=url, model=options.model, protocol=protocol, headers=headers, route=route
    )


def machines_of(options: argparse.Namespace) -> LoadMachines | None:
    """Return the load machines, None for this one. Raises `ValueError`."""
    from rackgate.loadgen.remote.machines import address_of
    from rackgate.nouns.target import LoadMachines

    if options.ray is None:
        if options.ray_nodes is not None:
            raise ValueError("--ray-nodes needs --ray")
        return None
    address_of(options.ray)
    return LoadMachines(ray=options.ray, nodes=tuple(filter(None, (options.ray_nodes or "").split(","))))
