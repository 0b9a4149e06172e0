"""The records of a run folded into what every format shows."""
