"""Judge a finished run again from its evidence, without a rack."""
