"""What a kernel, or on a CPU an operator, is for: one table of rules, the first that matches.

Names are those of cuBLAS, CUTLASS, cuDNN, ATen, Inductor and this project's Triton kernels.
"""

from __future__ import annotations

import re

MATMUL, ATTENTION, ELEMENTWISE = "matmul", "attention", "elementwise"
REDUCTION, OPTIMIZER, COPY, OTHER = "reduction", "optimizer", "copy", "other"
CLASSES = (MATMUL, ATTENTION, ELEMENTWISE, REDUCTION, OPTIMIZER, COPY, OTHER)

# (class, pattern); case does not matter. Specific names stand before general ones.
RULES = (
    (ATTENTION, r"flash_(fwd|bwd)|fmha|_sdpa_|scaled_dot_product|attention_(forward|backward)"),
    (ATTENTION, r"^(forward|delta|key_gradients|query_gradients|combine|sum)_kernel$"),
    (OPTIMIZER, r"adam|multi_tensor_apply|foreach"),
    (MATMUL, r"gemm|nvjet|cutlass|cublas|xmma|split_?k|gemv|mkldnn_linear"),
    (MATMUL, r"^aten::(mm|bmm|addmm|baddbmm|matmul|linear|einsum)$|mma_"),
    (COPY, r"^mem(cpy|set)|copy|catarray|index|gather|scatter|embedding|segment|sort|fill|arange"),
    (COPY, r"^cub::|thrust|^aten::(cat|stack|empty|zero|ones|new_|to$|clone|contiguous|select)"),
    (COPY, r"^aten::(_?unsafe_view|view|as_strided|transpose|permute|t$|expand|reshape|flatten)"),
    (COPY, r"^aten::(unbind|unflatten|chunk|narrow|slice|split|squeeze|unsqueeze|alias|detach)"),
    (COPY, r"^aten::(lift|resolve|result_type|item|_local_scalar|is_|set_|resize)"),
    (REDUCTION, r"reduc|softmax|nll|_norm|norm_|triton_(red|per)_|logsumexp"),
    (REDUCTION, r"^aten::(sum|mean|max|amax|var|cross_entropy)"),
    (ELEMENTWISE, r"elementwise|triton_poi_|unrolled|vectorized|distribution"),
    (ELEMENTWISE, r"^aten::_?(add|sub|rsub|mul|div|neg|pow|rsqrt|sqrt|exp|log|silu|sigmoid|where)"),
    (ELEMENTWISE, r"^aten::_?(masked|gt|lt|ge|le|eq|ne|bitwise|logical|clamp|relu|cos|sin|abs)"),
)
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in RULES)


def class_of(name: str) -> str:
    """One of CLASSES for the full name of a kernel or operator."""
    return next((found for found, pattern in _COMPILED if pattern.search(name)), OTHER)
