"""How a node is asked: files and commands, locally, over SSH or through Docker."""
