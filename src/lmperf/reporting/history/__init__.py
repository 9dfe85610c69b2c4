"""What changed in a machine's evidence from commit to commit: ``lmperf history``."""
