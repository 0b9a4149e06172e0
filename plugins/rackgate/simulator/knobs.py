"""The knobs of a simulated card, node and gateway: speeds, states and defects, healthy by default.

A scenario sets some of them. Nothing in the simulator depends on the name of a scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CardKnobs:
    """A card and the engine on it.

    Slowdowns multiply times, and shares are of requests, 0 to 1. Each `slow_every`th request waits
    `slow_extra_ms` more while at least `slow_from_running` requests run, and the first `cold_requests` of a
    process wait `cold_extra_ms` more. `front_delay_ms` pass before the engine's own clock of a request
    starts.

    `unended_share` of the streams end cleanly half-way without a terminal signal. With `empty_counted` the
    usage of an empty output counts all its tokens, and with `role_at_once` a stream begins before its first
    token. `api_defects` are any of `no_completions`, `shapeless` (ignores schemas and tools), `uncounted`
    (no token counts) and `crashing_parser`. `url_host` replaces the loopback address in the engine's URL.

    Telemetry fields have their names in dcgm-exporter.
    """

    # Speed of the engine.
    step_base_ms: float = 7.8
    step_per_sequence_ms: float = 0.15
    prefill_tokens_per_s: float = 8192.0
    prefix_cached_share: float = 0.0
    decode_slowdown: float = 1.0
    prefill_slowdown: float = 1.0
    first_token_delay_ms: float = 0.0
    front_delay_ms: float = 0.0
    slow_every: int = 0
    slow_extra_ms: float = 0.0
    slow_from_running: int = 0
    cold_requests: int = 0
    cold_extra_ms: float = 0.0
    fade_per_s: float = 0.0
    sibling_slowdown: float = 1.0
    survivor_slowdown: float = 1.0
    survivor_error_share: float = 0.0
    max_num_seqs: int = 64
    kv_capacity_tokens: int = 65536
    max_model_len: int = 32768

    # Answers of the engine.
    metrics_listed: bool = True
    listening: bool = True
    url_host: str = ""
    served_model: str = ""
    models_broken: bool = False
    hung: bool = False
    error_share: float = 0.0
    truncate_share: float = 0.0
    unended_share: float = 0.0
    empty_output: bool = False
    empty_counted: bool = False
    role_at_once: bool = False
    api_defects: tuple[str, ...] = ()
    burst: bool = False
    answers_cached: bool = False

    # What a kill and a restart do.
    kill_hits_decoy: bool = False
    restart_works: bool = True

    # The card. `sku` is its SKU in the target, `clock_events` are bits of clock events that are set while it
    # works, and `memory_held_mib` is memory that another process holds.
    sku: str = ""
    idle_power_w: float = 90.0
    full_power_w: float = 760.0
    extra_power_w: float = 0.0
    ambient_c: float = 30.0
    thermal_c_per_w: float = 0.0492
    thermal_time_constant_s: float = 2.0
    slowdown_c: float = 87.0
    slowdown_clock_factor: float = 0.6

    work_reaches_card: bool = True
    power_limit_w: float = 700.0
    power_limit_works: bool = True
    memory_hotter_c: float = 6.0
    clock_events: int = 0
    performance_state: int = 0
    memory_held_mib: int = 0

    # Health counters of the card: their values, and their increase with each second of work.
    ecc_volatile_uncorrectable: int = 0
    row_remap_pending: int = 0
    row_remap_failed: int = 0
    remapped_rows_uncorrectable: int = 0
    last_xid: int = 0
    pcie_width: int = 16
    pcie_generation: int = 5
    ecc_errors_per_busy_s: float = 0.0
    remapped_rows_per_busy_s: float = 0.0
    pcie_replays_per_busy_s: float = 0.0
    nvlink_errors_per_busy_s: float = 0.0
    xids_per_busy_s: float = 0.0

    # Telemetry of the card; `serial` is the serial number of another card in its place.
    serial: str = ""
    absent_from_exporter: bool = False
    blank_fields: tuple[str, ...] = ()
    absent_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKnobs:
    """A node: its exporter, its management controller, and the shipped folder that replaces its host.

    The exporter ends for good once the first card has worked for `exporter_lost_after_busy_s`. With
    `undeclared_card` the exporter lists a card that the target does not name. `sku` is the SKU of the cards
    in the target. `leak` is the state of the leak detector: `wet` or `disabled`.
    """

    exporter_listening: bool = True
    exporter_lost_after_busy_s: float | None = None
    undeclared_card: bool = False
    controller_answers: bool = True
    leak: str = ""
    supply_broken: bool = False
    fan_stopped: bool = False
    host_root: str = "healthy"
    sku: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKnobs:
    """The gateway in front of the engines.

    `weights` are per engine. `node_delay_ms` is per node, a delay of each request to it. `url_host`
    replaces the loopback address in the gateway's URL.
    """

    listening: bool = True
    url_host: str = ""
    health_checks: bool = True
    failover: bool = True
    readmits: bool = True
    health_interval_s: float = 0.5
    max_in_flight: int = 256
    first_byte_timeout_s: float = 10.0
    served_by_header: bool = True
    buffer_streams: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)
    node_delay_ms: Mapping[str, float] = field(default_factory=dict)


Knobs = TypeVar("Knobs", CardKnobs, NodeKnobs, GatewayKnobs)


def from_table(kind: type[Knobs], table: Mapping[str, Any], where: str) -> Knobs:
    """Return the knobs of a TOML or JSON table; raises ValueError for unknown keys."""
    known = [each.name for each in fields(kind)]
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(known)}")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    return kind(**values)
