"""Implementations that are wrong, slow, fake or harmful on purpose, one fault each.

Each function has the signature of a custom implementation: of attention, `function(q, k, v,
causal=...)` with q, k, v of shape [..., n, d], and of several ranks, `function(module)`.
`lmperf.selftest.cases` has the expected outcome of each function.
"""

# Seconds that `slow_first_call` sleeps.
FIRST_CALL_S = 0.5
# An argument of the process that the module `imports` starts.
LEFT_BEHIND = "left-behind-by-the-self-test"
# Share of the calls in which `wrong_now_and_then` is wrong.
WRONG_SHARE = 0.1
