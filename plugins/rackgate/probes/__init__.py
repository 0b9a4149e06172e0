"""Other people's programs: asked on the chosen nodes, their output read strictly, their values measured."""
