"""Wire protocols of inference servers."""
