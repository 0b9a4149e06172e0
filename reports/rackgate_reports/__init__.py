"""Reports of a run: records in, files out."""
