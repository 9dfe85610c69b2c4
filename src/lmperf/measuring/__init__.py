"""Taking numbers: clock, rounds, memory, and the worker processes that do it."""
