"""Instruments that observe a run: profiler, memory over time, dtypes, first steps."""
