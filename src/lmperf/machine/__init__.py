"""The machine at hand: its GPUs, CPU and software, and the repository whose code runs on it."""
