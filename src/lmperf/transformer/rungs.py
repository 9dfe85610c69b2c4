"""The ladder: train steps (rungs), each of which adds one technique to a rung below it.

A CUDA graph first runs the step with float32 weights as it is; then AdamW also writes bf16 copies
of them, whose gradients stay bf16. bf16 weights stand without a graph, for devices that have none,
and with one.

A rung is a cell of the benchmark `end_to_end`, which times the rungs of one size, context and batch
in turn; `ladder_loss` trains each rung on the same tokens. To add a rung, add it to `RUNGS` and its
words to `lmperf.names.IMPLEMENTATIONS`. This module imports no torch.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

_AUTOCAST = "autocast_bfloat16"


class Rung(NamedTuple):
    """One rung: its name, and the dtype and implementation of `end_to_end` that it is.

    dtype `bfloat16`: weights, gradients and moments are bf16; see `fused_adamw`.
    below: the rung that it is compared with, if that is not the one before it in `RUNGS`.
    """

    name: str
    dtype: str
    implementation: str
    below: str = ""


# The lowest rung first.
RUNGS = (
    Rung("float32", "float32", "eager"),
    Rung("tf32", "tf32", "eager"),
    Rung("autocast", _AUTOCAST, "eager"),
    Rung("compiled_blocks", _AUTOCAST, "compiled_blocks"),
    Rung("flash_attention", _AUTOCAST, "triton_compiled_blocks"),
    Rung("fused_loss", _AUTOCAST, "fused_loss"),
    Rung("fused_blocks", _AUTOCAST, "fused_blocks"),
    Rung("fused_graph", _AUTOCAST, "fused_graph"),
    Rung("graph", _AUTOCAST, "graph"),
    Rung("bf16_weights", "bfloat16", "fused_blocks", below="fused_blocks"),
    Rung("bf16_graph", "bfloat16", "graph", below="graph"),
)
# The rungs over the highest one of `RUNGS`: with the float8 matmuls of a peer, and with ours.
FLOAT8 = Rung("fp8_tensorwise", "bfloat16", "fp8_tensorwise", below="bf16_graph")
FLOAT8_GRAPH = Rung("fp8_graph", "bfloat16", "fp8_graph", below="bf16_graph")
IN_FLOAT8 = (FLOAT8_GRAPH, FLOAT8)
# The recommended step with what training needs beyond it: what each costs.
NEEDED = (
    Rung("clipped_graph", _AUTOCAST, "clipped_graph", below="graph"),
    Rung("accumulated_graph", _AUTOCAST, "accumulated_graph", below="graph"),
)
# Implementations of `end_to_end` that have a train step and no other phase.
STEPS_ALONE = frozenset(
    {
        *("fused_loss", "fused_blocks", "sdpa_graph", "fused_graph", "sdpa_copies_graph", "graph"),
        *(rung.name for rung in (*IN_FLOAT8, *NEEDED)),
    }
)


def rung_below(rung: Rung, known: Container[str]) -> Rung | None:
    """The rung that a rung is compared with: the one below it, else the highest lower one known.

    known: names of the rungs to choose from.
    """
    lower = RUNGS[: RUNGS.index(rung)] if rung in RUNGS else RUNGS
    below = [other for other in lower if other.name == rung.below]
    return next(
        (other for other in (*below, *reversed(lower)) if other.name in known),
        None,
    )
