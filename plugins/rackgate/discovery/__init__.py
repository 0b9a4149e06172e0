"""Inspection of this machine without a change to it, and the first target file made from it."""
