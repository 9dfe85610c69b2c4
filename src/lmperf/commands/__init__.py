"""The commands of `lmperf`, a module each; `lmperf.cli` puts them together."""
