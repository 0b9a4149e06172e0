"""TOML files to nouns. Pydantic is imported in this room only."""
