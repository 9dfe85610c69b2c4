"""The project's model with kernels of Liger (Hsu et al. 2024, arXiv:2410.10989), `liger-kernel`.

Liger's RMSNorm and SwiGLU replace the model's own. Liger's cross entropy is not used, because the
loss is computed outside the model; nor is Liger's rotary embedding, because it rotates queries and
keys in one call.
"""

from torch import Tensor, nn

from lmperf.transformer.model import Block, RMSNorm, SwiGLU, TransformerLM


def with_kernels(model: TransformerLM) -> TransformerLM:
    """Replace the model's norms and SwiGLUs in place, keeping parameters; returns the model."""
    for block in model.blocks:
        _change(block)
    model.norm = _Norm(model.norm)
    return model


def _change(block: Block) -> None:
    block.attention_norm = _Norm(block.attention_norm)
    block.feed_forward_norm = _Norm(block.feed_forward_norm)
    block.feed_forward = _SwiGLU(block.feed_forward)


class _Norm(nn.Module):
    """Liger's RMSNorm: x / rms(x) * weight over the last dimension, in at least float32."""

    def __init__(self, norm: RMSNorm) -> None:
        from liger_kernel.ops import LigerRMSNormFunction

        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps
        self._function = LigerRMSNormFunction

    def forward(self, x: Tensor) -> Tensor:
        return self._function.apply(x, self.weight, self.eps)


class _SwiGLU(nn.Module):
    """Liger's SwiGLU: down(silu(gate x) * up x), with gate and up in one projection."""

    def __init__(self, layer: SwiGLU) -> None:
        from liger_kernel.ops import LigerFusedGateUpSiLUMulFunction

        super().__init__()
        self.gate_up, self.down = layer.gate_up, layer.down
        self._function = LigerFusedGateUpSiLUMulFunction

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.gate_up(x).flatten(0, -2)  # the kernel returns a gradient of two dimensions
        return self.down(self._function.apply(tokens)).unflatten(0, x.shape[:-1])
