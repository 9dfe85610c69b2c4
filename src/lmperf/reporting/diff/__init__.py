"""What changed from one result to another, row by row: ``lmperf diff OLD NEW``."""
