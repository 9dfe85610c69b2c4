"""Times two versions of the code in turn on this machine: ``lmperf compare [REV [REV]]``."""
