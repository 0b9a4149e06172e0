"""Sources of card signals: NVML, exporters, Prometheus, nvidia-smi."""
