"""The ladder: train steps (rungs), each of which adds one technique to the rung below it.

A rung is a cell of the benchmark `end_to_end`, which times the rungs of one size, context and batch
in turn; `ladder_loss` trains each rung on the same tokens. To add a rung, add it to `RUNGS` and its
words to `lmperf.names.IMPLEMENTATIONS`. This module imports no torch.
"""

from __future__ import annotations

from typing import NamedTuple

_AUTOCAST = "autocast_bfloat16"


class Rung(NamedTuple):
    """One rung: its name, and the dtype and implementation of `end_to_end` that it is.

    dtype `bfloat16`: weights, gradients and moments are bf16, and AdamW is compiled.
    """

    name: str
    dtype: str
    implementation: str


# The lowest rung first.
RUNGS = (
    Rung("float32", "float32", "eager"),
    Rung("tf32", "tf32", "eager"),
    Rung("autocast", _AUTOCAST, "eager"),
    Rung("compiled_blocks", _AUTOCAST, "compiled_blocks"),
    Rung("flash_attention", _AUTOCAST, "triton_compiled_blocks"),
    Rung("fused_loss", _AUTOCAST, "fused_loss"),
    Rung("fused_blocks", _AUTOCAST, "fused_blocks"),
    Rung("bf16_weights", "bfloat16", "fused_blocks"),
    Rung("graph", "bfloat16", "graph"),
)
# Rungs over the highest one of `RUNGS`, each with the float8 matmuls of a peer in one recipe.
FLOAT8 = (
    Rung("fp8_tensorwise", "bfloat16", "fp8_tensorwise"),
    Rung("fp8_rowwise", "bfloat16", "fp8_rowwise"),
)
# Implementations of `end_to_end` that have a train step and no other phase.
STEPS_ALONE = frozenset({"fused_loss", "fused_blocks", "graph", *(rung.name for rung in FLOAT8)})
