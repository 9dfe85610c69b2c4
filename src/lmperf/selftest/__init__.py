"""Selftest: the pipeline, on implementations that are planted to fool it or to harm their peers."""
