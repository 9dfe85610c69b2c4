"""Measures time and memory of cases in worker processes."""
