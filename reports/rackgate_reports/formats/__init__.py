"""The files of a view: HTML, Markdown and JUnit."""
