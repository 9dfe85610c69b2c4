"""Constants of the error bounds of attention, in a module that imports no torch.

The report states these constants; `accuracy.error_bound` derives the numbers.
"""

from lmperf.dtypes import DTYPES

# The number of rows over whose RMS an error is divided: see `accuracy.blockwise_error`.
BLOCK = 64

# Unit roundoff, and the number of roundoffs allowed, by the dtype in which matmuls multiply.
_UNIT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_ROUNDOFFS_ALLOWED = {"float32": 256, "tf32": 24, "float16": 24, "bfloat16": 6}

# The same by value of the dtype axis. A dtype whose matmul has no entry above has no error bound:
# looking it up is an error.
_MATMULS = {name: dtype.matmul for name, dtype in DTYPES.items() if dtype.matmul in _UNIT_ROUNDOFF}
UNIT_ROUNDOFF = {name: _UNIT_ROUNDOFF[matmul] for name, matmul in _MATMULS.items()}
ROUNDOFFS_ALLOWED = {name: _ROUNDOFFS_ALLOWED[matmul] for name, matmul in _MATMULS.items()}
ROUNDOFFS_OF_ROUNDED_SCORES = 24
# The largest |score| of the inputs with large scores.
LARGEST_SCORE = 128
