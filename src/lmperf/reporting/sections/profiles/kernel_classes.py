"""Classifies kernels, or operators on a CPU, by name: matmul, attention, copy, ...

The rules know names of cuBLAS, CUTLASS, cuDNN, ATen, Inductor and this project's Triton kernels;
the first rule that matches decides. The name of a fused Inductor kernel lists its operators,
including views, which cost nothing: the most expensive operator decides the class.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lmperf.names import Look


@dataclass(frozen=True)
class KernelClass:
    """How reports show a class of kernels: column header in tables, colour and hatch in figures."""

    words: str
    look: Look


MATMUL, ATTENTION, ELEMENTWISE = "matmul", "attention", "elementwise"
REDUCTION, OPTIMIZER, COPY, OTHER = "reduction", "optimizer", "copy", "other"
# In the order of the columns of a table.
CLASSES = {
    MATMUL: KernelClass("matmul", Look("blue", "o")),
    ATTENTION: KernelClass("attention kernels", Look("pink", "D", hatch="\\\\\\")),
    ELEMENTWISE: KernelClass("other elementwise", Look("orange", "s", hatch="///")),
    REDUCTION: KernelClass("softmax, norms, reductions", Look("green", "^", hatch="|||")),
    OPTIMIZER: KernelClass("optimizer", Look("mustard", "v", hatch="xxx")),
    COPY: KernelClass("copies and casts", Look("grey", "P", hatch="---")),
    OTHER: KernelClass("no class", Look("violet", "X", hatch="+++")),
}

# (class, pattern); case does not matter. Specific names stand before general ones.
RULES = (
    (ATTENTION, r"flash_(fwd|bwd)|fmha|_sdpa_|scaled_dot_product|attention_(forward|backward)"),
    (ATTENTION, r"^(forward|delta|key_gradients|query_gradients|combine|sum)_kernel$"),
    (ATTENTION, r"cudnn::fusion::(compute_dot_do_o|convert_dq)"),  # of a backward pass
    (OPTIMIZER, r"adam|multi_tensor_apply|foreach"),
    (MATMUL, r"gemm|nvjet|cutlass|cublas|xmma|split_?k|gemv|mkldnn_linear"),
    (MATMUL, r"^aten::(mm|bmm|addmm|baddbmm|matmul|linear|einsum)$|mma_"),
    (ELEMENTWISE, r"masked_fill"),
    (COPY, r"^mem(cpy|set)|copy|catarray|index|gather|scatter|embedding|segment|sort|fill|arange"),
    (COPY, r"^cub::|thrust|^aten::(cat|stack|empty|zero|ones|new_|to$|clone|contiguous|select)"),
    (COPY, r"^aten::(_?unsafe_view|view|as_strided|transpose|permute|t$|expand|reshape|flatten)"),
    (COPY, r"^aten::(unbind|unflatten|chunk|narrow|slice|split|squeeze|unsqueeze|alias|detach)"),
    (COPY, r"^aten::(lift|resolve|result_type|item|_local_scalar|is_|set_|resize)"),
    (REDUCTION, r"reduc|softmax|nll|_norm|norm_|logsumexp"),
    (REDUCTION, r"^aten::(sum|mean|max|amax|var|cross_entropy)"),
    (ELEMENTWISE, r"elementwise|unrolled|vectorized|distribution"),
    (ELEMENTWISE, r"^aten::_?(add|sub|rsub|mul|div|neg|pow|rsqrt|sqrt|exp|log|silu|sigmoid|where)"),
    (ELEMENTWISE, r"^aten::_?(masked|gt|lt|ge|le|eq|ne|bitwise|logical|clamp|relu|cos|sin|abs)"),
)
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in RULES)

# Inductor names kernels triton_<kind>_fused_<operators>_<number>. Kinds: tem (template), for
# (foreach), red, per, mix, spl (reductions) and poi (pointwise, classified by its operators).
FUSED = re.compile(r"^triton_(?P<kind>tem|for|red|per|mix|spl|poi)_fused_(?P<operators>\w+)")
_BY_KIND = {"for": OPTIMIZER, **dict.fromkeys(("red", "per", "mix", "spl"), REDUCTION)}
_REDUCING = re.compile("softmax|logsumexp|mean|sum|var|amax|amin|nll|norm|welford|prod|cumsum")
# Words of operators that compute nothing. `mm` names a library call beside the fused kernel.
_MOVING = re.compile(
    r"|to|copy|clone|unsafe|view|permute|transpose|t|unsqueeze|squeeze|expand|reshape|cat|split|with"
    r"|sizes|slice|select|unbind|stack|as|strided|constant|pad|nd|full|like|zeros|ones|empty|new"
    r"|arange|iota|detach|alias|lift|fresh|scatter|backward|embedding|dense|index|put|gather|device"
    r"|convert|element|type|prims|fill|flip|repeat|default|scalar|tensor|mm|bmm|\d+"
)


def class_of(name: str) -> str:
    """The class, a key of CLASSES, of a kernel or operator with this full name."""
    fused = FUSED.match(name)
    if fused:
        return _class_of_fused(fused["kind"], fused["operators"].lower().split("_"))
    return next((found for found, pattern in _COMPILED if pattern.search(name)), OTHER)


def _class_of_fused(kind: str, words: list[str]) -> str:
    if kind == "tem":
        return ATTENTION if "attention" in words else MATMUL
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if any(_REDUCING.fullmatch(word) for word in words):
        return REDUCTION
    return COPY if all(_MOVING.fullmatch(word) for word in words) else ELEMENTWISE
