"""Engines: how they are started, and how one speaks with them."""
