"""Attention implementations that are wrong, slow, faked or harmful, one fault each.

Each is called like a custom implementation, as `function(q, k, v, causal=...)` with q, k, v
[..., n, d]. `lmperf.selftest.cases` has the expected outcome of each.
"""

# Seconds that `slow_first_call` sleeps.
FIRST_CALL_S = 0.5
