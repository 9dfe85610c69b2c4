"""The commands of `lmperf`, one module each. `lmperf.cli` registers them."""
