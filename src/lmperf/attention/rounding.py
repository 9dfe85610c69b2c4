"""How much rounding the gates allow, apart from what measures it: a report states it, torch or not.

`accuracy.error_bound` has the derivation.
"""

# Rows beside which a row is held: see `accuracy.blockwise_error`.
BLOCK = 64
UNIT_ROUNDOFF = {
    "float32": 2.0**-24,
    "tf32": 2.0**-11,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "autocast_bfloat16": 2.0**-8,
}

ROUNDOFFS_ALLOWED = {
    "float32": 256,
    "tf32": 24,
    "float16": 24,
    "bfloat16": 6,
    "autocast_bfloat16": 6,
}
ROUNDOFFS_OF_ROUNDED_SCORES = 24
