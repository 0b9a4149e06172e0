"""The nouns of an acceptance: frozen dataclasses of the standard library and of each other."""
