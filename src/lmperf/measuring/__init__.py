"""Taking numbers: clock, memory, worker processes, the store of rows, the machine's facts."""
