"""The first record of a synthetic run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackgate.nouns.slo import STAGES

if TYPE_CHECKING:
    from synthetic_scenario import Scenario


def run_payload(scenario: Scenario) -> dict[str, Any]:
    nodes = [
        {
            "name": f"node{n}",
            "exporter_url": f"http://node{n}:9400/metrics",
            "cards": [
                {
                    "name": f"node{n}/gpu{c}",
                    "index": c,
                    "uuid": f"GPU-{n:04x}{c:04x}-1f2e",
                    "serial": f"165042{n:02d}{c:02d}",
                    "sku": "H100-SXM5-80GB",
                }
                for c in range(scenario.cards)
            ],
        }
        for n in range(1, scenario.nodes + 1)
    ]
    return {
        "run_id": "20260309T080000Z-smoke-7f3a",
        "profile": "smoke",
        "grade": scenario.grade,
        "scenario": "slow_card" if scenario.slow else None,
        "partial": scenario.partial,
        "partial_why": ["-k ttft"] if scenario.partial else [],
        "command_line": "pytest -m rack_acceptance --rack-target rack.toml --rack-profile smoke",
        "seed": 20260309,
        "stages": list(STAGES),
        "target": {
            "name": "hall-b-rack-07",
            "model": "llama-3.1-8b-instruct",
            "vantage": "operator",
            "source": "rack.toml",
            "digest": "9c1e" * 16,
            "nodes": nodes,
            "engines": [
                {
                    "name": f"engine-{entity}",
                    "entity": entity,
                    "launcher": "simulated",
                    "protocol": "openai",
                    "model": "llama-3.1-8b-instruct",
                    "pool": "gpu",
                    "cards": [entity],
                    "nodes": [entity.partition("/")[0]],
                    "url": "http://127.0.0.1:18000",
                }
                for entity in scenario.entities
            ],
            "gateway": {"url": "http://127.0.0.1:18080"},
            "may_break": ["kill", "pause"],
            "prices": None,
        },
        "acceptance": {
            "files": ["defaults.toml", "site.toml"],
            "digest": "44ab" * 16,
            "overrides": [
                {"id": "soak.ttft_p99", "fields": ["bound"], "reason": "contract 2026-11, clause 4.2"}
            ],
        },
        "loads": {"steady": {"prompt_tokens": 256, "output_tokens": 64, "concurrency": 4}},
        "versions": {"pytest-rackgate": "0.1.0", "pytest": "9.2.0", "python": "3.11.9", "numpy": "2.3.1"},
        "host": {"node": "loader-1", "kernel": "6.8.0", "cores": 16},
        "excluded": [],
        "continues": None,
    }
