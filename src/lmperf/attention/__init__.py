"""Attention: definition and reference, timed problem, error bounds, implementations."""
