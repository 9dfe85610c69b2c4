"""Published figures, as data: one CSV a benchmark, a line a figure (see `sections.published`)."""
