"""Tools that observe a run: profiler, memory over time, dtypes, times of the first steps."""
