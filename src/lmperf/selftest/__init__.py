"""Tests the pipeline with implementations planted to deceive it or to harm their peers."""
