"""Charts of the HTML report as SVG: the timeline and the latency distribution."""
