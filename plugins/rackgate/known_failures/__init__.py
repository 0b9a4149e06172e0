"""Known failures by what they print: layer, meaning, next step."""
