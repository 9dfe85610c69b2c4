"""Implementations of attention that are wrong, late, faked or harmful, each in its own way.

Each is called as `function(q, k, v, causal=...)`, with q, k, v [..., n, d], as an implementation of
a user's own is. `lmperf.selftest.cases` says what must become of each.
"""

# How long the one sleeps that sleeps in its first call.
FIRST_CALL_S = 0.5
