"""Lines of evidence, and what is masked before a line is written."""
