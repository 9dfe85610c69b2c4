"""Classes and short names of kernels, or of operators on a CPU.

A kernel is classified by its name: of cuBLAS, CUTLASS, cuDNN, ATen, Inductor or this project's
Triton kernels. The first rule that matches decides. The name of a fused Inductor kernel lists its
operators, including views, which cost nothing: the most expensive operator decides its class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple


class KernelClass(NamedTuple):
    """How reports show a class of kernels: in words, and its colour in figures."""

    words: str
    colour: str


MATMUL, ATTENTION, ELEMENTWISE = "matmul", "attention", "elementwise"
REDUCTION, OPTIMIZER, COPY, OTHER = "reduction", "optimizer", "copy", "other"
# In the order of the columns of a table.
CLASSES = {
    MATMUL: KernelClass("matmul", "blue"),
    ATTENTION: KernelClass("attention kernels", "pink"),
    ELEMENTWISE: KernelClass("other elementwise", "orange"),
    REDUCTION: KernelClass("softmax, norms, reductions", "green"),
    OPTIMIZER: KernelClass("optimizer", "mustard"),
    COPY: KernelClass("copies and casts", "grey"),
    OTHER: KernelClass("no class", "violet"),
}

# (class, pattern); case does not matter. Specific names stand before general ones.
RULES = (
    (ATTENTION, r"flash_(fwd|bwd)|fmha|_sdpa_|scaled_dot_product|attention_(forward|backward)"),
    # This project's kernels.
    (ATTENTION, r"^(forward|prepare|fused|finish|delta|key_gradients|query_gradients)_kernel$"),
    (ATTENTION, r"^(measure|split|combine|sum)_kernel$"),
    (ELEMENTWISE, r"^(rope|swiglu|swiglu_gradient)_kernel$"),
    (COPY, r"^(float8_weight|float8_cast|next_scales)_kernel$"),
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
    if fused := FUSED.match(name):
        return _class_of_fused(fused["kind"], fused["operators"].lower().split("_"))
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), OTHER)


def _class_of_fused(kind: str, words: list[str]) -> str:
    if kind == "tem":
        return ATTENTION if "attention" in words else MATMUL
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if any(_REDUCING.fullmatch(word) for word in words):
        return REDUCTION
    return COPY if all(_MOVING.fullmatch(word) for word in words) else ELEMENTWISE


LONGEST = 60  # characters of a short name
MOST_WORDS = 3
# Template arguments that say what a kernel computes, and wrappers among them that do not.
PURPOSE = re.compile(r"\b(cutlass_\w+|\w*Functor\w*|\w+_kernel(?:_cuda|_impl)?)(?=[<(,>: ])")
WRAPPER = re.compile(r"[AB]?(Binary|Unary)Functor|gpu_kernel_impl(_nocast)?|elementwise_kernel")


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Full kernel name -> short name. Words from the full names make equal short names unique.

    The result does not depend on the order of the names.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(_base(name), []).append(name)
    return {name: text for base, group in groups.items() for name, text in _apart(base, group)}


def _base(name: str) -> str:
    """A kernel name without namespaces, return type and arguments; [functor or kernel] added."""
    if name.startswith("aten::"):
        return name
    name = name.replace("(anonymous namespace)", "anonymous")
    base = re.sub(r"[<(].*", "", name).split("::")[-1].removeprefix("void ").strip()
    inside = PURPOSE.findall(name.partition("<")[2])
    purpose = next((word for word in inside if not WRAPPER.fullmatch(word)), None)
    text = f"{base} [{purpose}]" if purpose else base
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[1 - LONGEST // 2 :]}"


def _apart(base: str, group: list[str]) -> Iterable[tuple[str, str]]:
    """(full name, short name) for kernels that share the short name ``base``.

    The fewest words that no other full name of the group combines are added, else a number.
    """
    if len(group) == 1:
        return [(group[0], base)]
    words = [dict.fromkeys(re.findall(r"[^\W_]+", name)) for name in group]
    labels = [_telling(mine, [other for other in words if other is not mine]) for mine in words]
    return [
        (name, f"{base} ({label or f'no. {place}'})")
        for place, (name, label) in enumerate(zip(group, labels, strict=True), 1)
    ]


def _telling(words: Iterable[str], others: list[dict]) -> str:
    useful = [word for word in words if any(word not in other for other in others)]
    useful = sorted(useful, key=lambda word: (not word[0].isalpha(), -len(word)))
    for number in range(1, MOST_WORDS + 1):
        for chosen in combinations(useful, number):
            if all(any(word not in other for word in chosen) for other in others):
                return ", ".join(chosen)
    return ""
