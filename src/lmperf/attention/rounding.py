"""Constants of the error bounds, apart from `accuracy`: a report states them without torch.

`accuracy.error_bound` derives the numbers.
"""

from lmperf.dtypes import DTYPES

# Rows whose RMS an error is divided by: see `accuracy.blockwise_error`.
BLOCK = 64

# By the dtype in which matmuls multiply.
_UNIT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_ROUNDOFFS_ALLOWED = {"float32": 256, "tf32": 24, "float16": 24, "bfloat16": 6}

# By the value of the dtype axis. One with another matmul dtype has no bound: using it is an error.
_MATMULS = {name: dtype.matmul for name, dtype in DTYPES.items() if dtype.matmul in _UNIT_ROUNDOFF}
UNIT_ROUNDOFF = {name: _UNIT_ROUNDOFF[matmul] for name, matmul in _MATMULS.items()}
ROUNDOFFS_ALLOWED = {name: _ROUNDOFFS_ALLOWED[matmul] for name, matmul in _MATMULS.items()}
ROUNDOFFS_OF_ROUNDED_SCORES = 24
