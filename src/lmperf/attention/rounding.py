"""Constants of the error bounds, apart from `accuracy`: a report states them without torch.

`accuracy.error_bound` derives the numbers.
"""

# Rows whose RMS an error is divided by: see `accuracy.blockwise_error`.
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
