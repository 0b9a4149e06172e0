"""What each stage measures: one module a stage, and what stages share.

Shared: `site` (engines and gateway of this run), `load_runs` (loads, look by look), `observing` (telemetry of
the loads' window), `probe_runs` (programs of others), `headline_metrics` and `economy` (recorded beside the
checks), `evidence_grade`.
"""
