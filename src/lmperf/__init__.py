"""lmperf: a reproducible performance report for Transformer language models."""
