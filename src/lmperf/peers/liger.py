"""The project's model with kernels of Liger (Hsu et al. 2024, arXiv:2410.10989): `liger-kernel`.

RMSNorm and the gate of the SwiGLU are Liger's. Its cross entropy is not, since the loss is outside
of what is called, nor its rotary embedding, which turns queries and keys in one call.
"""

from torch import Tensor, nn

from lmperf.transformer.model import Block, RMSNorm, SwiGLU, TransformerLM


def with_kernels(model: TransformerLM) -> TransformerLM:
    """The model, changed in place: other norms and SwiGLUs over the same parameters."""
    for block in model.blocks:
        _change(block)
    model.norm = _Norm(model.norm)
    return model


def _change(block: Block) -> None:
    block.attention_norm = _Norm(block.attention_norm)
    block.feed_forward_norm = _Norm(block.feed_forward_norm)
    block.feed_forward = _SwiGLU(block.feed_forward)


class _Norm(nn.Module):
    """x / rms(x) * weight over the last dimension, in at least float32."""

    def __init__(self, norm: RMSNorm) -> None:
        from liger_kernel.ops import LigerRMSNormFunction

        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps
        self._function = LigerRMSNormFunction

    def forward(self, x: Tensor) -> Tensor:
        return self._function.apply(x, self.weight, self.eps)


class _SwiGLU(nn.Module):
    """down(silu(gate x) * up x), gate and up in one projection as Liger's kernel takes them."""

    def __init__(self, layer: SwiGLU) -> None:
        from liger_kernel.ops import LigerFusedGateUpSiLUMulFunction

        super().__init__()
        self.gate_up, self.down = layer.gate_up, layer.down
        self._function = LigerFusedGateUpSiLUMulFunction

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.gate_up(x).flatten(0, -2)  # its gradient has no more than two dimensions
        return self.down(self._function.apply(tokens)).unflatten(0, x.shape[:-1])
