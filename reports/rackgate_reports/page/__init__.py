"""Parts of the HTML report: sections, tables, badges."""
