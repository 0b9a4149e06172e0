"""Endpoint and load machines of `rackgate load`, and the runner that offers loads to the endpoint."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rackgate.engines.context import context_of
from rackgate.engines.metrics_page import MetricsPage
from rackgate.engines.protocols.protocol import protocol_named
from rackgate.engines.route_options import route_of
from rackgate.loadgen.engine_counters import fetch_engine_pages, prefix_counters_between
from rackgate.loadgen.http.transport import Server
from rackgate.loadgen.instrument.reference import InstrumentError, measure_instrument
from rackgate.loadgen.progress import StreamProgress, show_progress
from rackgate.loadgen.remote.relay import address_of
from rackgate.loadgen.results.offered_load import OfferedLoad
from rackgate.loadgen.running import check_load, start_load
from rackgate.loadgen.sizing import REFERENCE_LOAD, concurrent_streams, scaled_reference
from rackgate.nouns.endpoint import Endpoint
from rackgate.nouns.load import Load
from rackgate.nouns.target import LoadMachines

_END_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class LoadRunner:
    """Offers loads to one endpoint; `seed` makes their prompts, so that no two calls repeat a prompt."""

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
        """Return the offered load with prefix-cache counters, and whether Ctrl-C interrupted it."""
        endpoint = self.endpoint
        page = MetricsPage(url=f"{endpoint.url}/metrics", headers=endpoint.headers, route=endpoint.route)
        pages = {endpoint.entity: page}
        path = samples or self.folder / f"{label}.{look}.parquet"
        interrupted = False
        before = fetch_engine_pages(pages)
        with start_load(
            load, [endpoint], label=label, samples_path=path, seed=self.seed, look=look,
            requests=requests, warmup=look == 0, machines=self.machines,
        ) as running:  # fmt: skip
            try:
                show_progress(running, load, StreamProgress(sys.stderr))
                offered = running.finish()
            except KeyboardInterrupt:
                interrupted = True
                running.cancel()
                offered = running.finish(load.limits.connect_s + _END_LIMIT_S)
        counters = prefix_counters_between(before, fetch_engine_pages(pages))
        return replace(offered, prefix=counters), interrupted

    def measure_instrument(self, load: Load) -> InstrumentError:
        """Return the error of the load generator, measured at the number of streams of a load."""
        reference = scaled_reference(REFERENCE_LOAD, concurrent_streams(load, 1))
        return measure_instrument(reference, samples_path=self.folder / "reference.parquet", seed=self.seed)


def with_context_of(load: Load, endpoint: Endpoint) -> Load:
    """Return the load with the context length of its endpoint. Raises `ValueError` if it cannot be offered.

    The endpoint is asked only if the load is valid without its context length.
    """
    check_load(load)
    if load.context_tokens is not None:
        return load
    asked = replace(endpoint, protocol=load.protocol or endpoint.protocol)
    load = replace(load, context_tokens=context_of([asked]))
    try:
        check_load(load)
    except ValueError as error:
        raise ValueError(f"{error} (so says {endpoint.url}/v1/models)") from None
    return load


def endpoint_from_options(options: argparse.Namespace) -> Endpoint:
    """Return the endpoint of the load. Raises `ValueError`."""
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


def machines_from_options(options: argparse.Namespace) -> LoadMachines | None:
    """Return the load machines, None for this machine. Raises `ValueError`."""
    if options.ray is None:
        if options.ray_nodes is not None:
            raise ValueError("--ray-nodes needs --ray")
        return None
    address_of(options.ray)
    return LoadMachines(ray=options.ray, nodes=tuple(filter(None, (options.ray_nodes or "").split(","))))
