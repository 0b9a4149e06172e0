"""SVG charts of the HTML report."""
