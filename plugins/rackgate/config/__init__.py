"""TOML files in, nouns out. pydantic is imported here and nowhere else."""
