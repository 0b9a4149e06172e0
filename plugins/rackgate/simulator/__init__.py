"""A simulated rack: engines, telemetry, a gateway and a batch command as real processes on the loopback."""
