"""What watches a run without timing it in turn: profiler, memory over time, dtypes, first steps."""
