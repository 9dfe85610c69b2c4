"""Parameters, FLOPs and memory of `TransformerLM` in closed form. No torch.

Symbols, in elements: b batch, n context, T = b n tokens, d = d_model, f = d_ff, L layers,
V vocabulary.
"""

from collections.abc import Iterable

from lmperf.models.footprint import Footprint
from lmperf.models.sizes import VOCAB_SIZE, ModelSize

FLOPS_PER_FORWARD = {"forward": 1, "backward": 2, "forward_backward": 3, "train_step": 3}
OPERAND_BYTES = {"float32": 4, "tf32": 4, "autocast_bfloat16": 2}
MEMORY_PHASES = ("forward", "train_step")
DEVICES = ("cpu", "cuda", "mps")


def parameter_count(size: ModelSize, vocab: int = VOCAB_SIZE) -> int:
    """Embedding and head 2 V d, a block 4 d^2 + 3 d f + 2 d (two norms), the last norm d."""
    return size.parameters(vocab)


def flops(size: ModelSize, context: int, batch: int, phase: str, vocab: int = VOCAB_SIZE) -> int:
    """FLOPs of the matmuls of one phase: forward, backward, forward_backward or train_step.

    A weight does 2 FLOPs a token, so a forward does 2 T (L (4 d^2 + 3 d f) + V d). Plain attention
    computes all n^2 scores and masks half of them, so what is executed is counted: 2 b n^2 d for
    q k^T and as many for the values, 4 L b n^2 d in all. The backward does two matmuls, for the
    input and for the weight, where the forward does one. The optimizer multiplies no matrices.
    Raises ValueError for another phase.
    """
    _check("phase", phase, FLOPS_PER_FORWARD)
    weights = size.num_layers * size.linear_parameters + vocab * size.d_model
    attention = 4 * size.num_layers * batch * context**2 * size.d_model
    return FLOPS_PER_FORWARD[phase] * (2 * batch * context * weights + attention)


def predicted_memory(
    size: ModelSize,
    context: int,
    batch: int,
    dtype: str,
    phase: str,
    device: str = "cpu",
    vocab: int = VOCAB_SIZE,
) -> dict[str, int]:
    """Bytes alive at the peak of a phase, by category, and their sum as "peak".

    phase: "forward" (inference under no_grad, no optimizer) or "train_step" (a step after the
    first: `lmperf.models.training.train_step` with the fused AdamW, its state alive, gradients
    cleared). dtype: float32, tf32 or autocast_bfloat16. device: "cuda" adds what its operators
    allocate inside. The categories, as they are at that moment: parameters; weight_copies (cached
    by autocast); gradients; optimizer (two moments); activations (saved for the backward);
    temporary; inputs (tokens, targets, RoPE tables); workspace (cuBLAS).
    Raises ValueError for another dtype, phase or device.
    """
    moments = memory_moments(size, context, batch, dtype, phase, device, vocab)
    return max(moments.values(), key=lambda moment: moment["peak"])


def memory_moments(
    size: ModelSize,
    context: int,
    batch: int,
    dtype: str,
    phase: str,
    device: str = "cpu",
    vocab: int = VOCAB_SIZE,
) -> dict[str, dict[str, int]]:
    """The moments that can be the peak of a phase -> what `predicted_memory` returns for them.

    Between the last block's backward and the first's, activations fall and gradients grow by the
    same amount with every layer, so that one of the two ends is the highest.
    """
    _check("phase", phase, MEMORY_PHASES)
    _check("dtype", dtype, OPERAND_BYTES)
    _check("device", device, DEVICES)
    footprint = Footprint(size, context, batch, OPERAND_BYTES[dtype], device, vocab)
    return footprint.inference() if phase == "forward" else footprint.training()


def _check(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} {value!r} is none of {', '.join(known)}")
