"""Times two versions of the code, interleaved, on this machine: ``lmperf compare [OLD] [NEW]``."""
