"""Selftest: the pipeline on implementations that are planted to fool it, or that it must not harm."""
