"""Engines in Kubernetes pods."""
