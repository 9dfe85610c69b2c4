"""Two versions of the code, timed in turn on this machine: ``lmperf compare [REV [REV]]``."""
