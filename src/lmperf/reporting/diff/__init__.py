"""Compare two results row by row: ``lmperf diff OLD NEW``."""
