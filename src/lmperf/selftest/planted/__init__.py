"""Implementations that are wrong, fake or harmful on purpose, one fault each, and honest twins.

Each has the signature of a custom implementation: of attention, `function(q, k, v, causal=...)`
with q, k, v of shape [..., n, d], and of several ranks, `function(module)`. A twin does the same
without the fault. `lmperf.selftest.sessions` has the expected outcome of each.
"""
