"""Tests that the pipeline detects planted implementations: wrong, fake or harmful on purpose."""
