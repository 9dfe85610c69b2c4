"""The attention benchmark: reference, timed problem, error bounds and implementations."""
