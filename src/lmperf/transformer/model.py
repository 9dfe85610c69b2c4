"""A Transformer language model: pre-norm, RMSNorm, RoPE, SwiGLU, causal attention, untied head.

Every operation is written in plain PyTorch, with one precision policy on every device: under
autocast the linear layers and the two attention matmuls run in the low precision; residual stream,
norms, RoPE, softmax and loss stay in float32. Autograd therefore saves the same tensors on a CPU
and on a GPU, and `lmperf.transformer.footprint` counts them in closed form.

Sources: Vaswani et al. 2017 (attention), Zhang and Sennrich 2019 (RMSNorm), Su et al. 2021 (RoPE),
Shazeer 2020 (SwiGLU), Radford et al. 2019 (initialisation scaled by depth).
"""

import copy
import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmperf.transformer.sizes import ROPE_THETA, ModelSize, check_heads

Attention = Callable[..., Tensor]
Model = TypeVar("Model", bound=nn.Module)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, storing every intermediate; the softmax is at least float32.

    q, k, v: [batch, heads, seq_len, d_head] of one dtype; returns the shape and dtype of q.
    """
    weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
    if causal:
        weights = weights.masked_fill(_future(weights), float("-inf"))
    at_least_float32 = torch.promote_types(weights.dtype, torch.float32)
    weights = torch.softmax(weights, dim=-1, dtype=at_least_float32).to(v.dtype)
    return weights @ v


def _future(scores: Tensor) -> Tensor:
    query = torch.arange(scores.shape[-2], device=scores.device)
    key = torch.arange(scores.shape[-1], device=scores.device)
    return key[None, :] > query[:, None]


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension (Zhang and Sennrich 2019, eq. 4)."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class RotaryEmbedding(nn.Module):
    """Rotates channel pairs (c, c + d_head/2) by position * theta^(-2c/d_head) (Su et al. 2021).

    The tables are computed in float64 and stored in the default dtype, [context_length, d_head/2].
    """

    def __init__(self, d_head: int, context_length: int, theta: float) -> None:
        super().__init__()
        frequencies = theta ** (
            -torch.arange(0, d_head, 2, dtype=torch.float64, device="cpu") / d_head
        )
        positions = torch.arange(context_length, dtype=torch.float64, device="cpu")
        angles = torch.outer(positions, frequencies)
        stored = {"device": torch.get_default_device(), "dtype": torch.get_default_dtype()}
        self.register_buffer("cos", angles.cos().to(**stored), persistent=False)
        self.register_buffer("sin", angles.sin().to(**stored), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rotate x [batch, heads, seq_len, d_head]; returns the same shape and dtype."""
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
        return rotated.to(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head causal self-attention with one fused projection for queries, keys and values."""

    def __init__(self, d_model: int, num_heads: int, rotary: RotaryEmbedding) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.rotary = rotary
        self.attention: Attention = plain_attention
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = self.attention(self.rotary(q), self.rotary(k), v, causal=True)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    """down(silu(gate x) * up x) (Shazeer 2020, eq. 6), gate and up in one projection."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """Pre-norm Transformer block; input and output are [batch, seq_len, d_model]."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, rotary: RotaryEmbedding) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(d_model)
        self.attention = SelfAttention(d_model, num_heads, rotary)
        self.feed_forward_norm = RMSNorm(d_model)
        self.feed_forward = SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class TransformerLM(nn.Module):
    """Causal language model: tokens [batch, seq_len] int64 -> logits [batch, seq_len, vocab_size].

    `blocks` is a ModuleList, so that each block can be compiled separately. The attention of a
    block is `plain_attention`, and can be replaced by a callable with the same arguments. Under
    autocast the logits have the low precision.

    Raises:
        ValueError: d_model does not split into heads of an even width; from forward: the sequence
            is longer than context_length.
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float = ROPE_THETA,
    ) -> None:
        super().__init__()
        check_heads(d_model, num_heads)
        self.context_length = context_length
        rotary = RotaryEmbedding(d_model // num_heads, context_length, rope_theta)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(
            Block(d_model, num_heads, d_ff, rotary) for _ in range(num_layers)
        )
        self.norm = RMSNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self._initialise(num_layers)

    @classmethod
    def of_size(cls, size: ModelSize, vocab_size: int, context_length: int) -> "TransformerLM":
        """A model whose size is one of `lmperf.transformer.sizes`."""
        widths = size.d_model, size.num_layers, size.num_heads, size.d_ff
        return cls(vocab_size, context_length, *widths)

    def _initialise(self, num_layers: int) -> None:
        # Each block adds to the residual stream twice. Dividing by the square root of the number of
        # additions keeps the variance of the stream independent of depth.
        residual_std = 0.02 / math.sqrt(2 * max(num_layers, 1))
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                adds_to_stream = name.endswith(
                    ("attention.output.weight", "feed_forward.down.weight")
                )
                nn.init.normal_(parameter, std=residual_std if adds_to_stream else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[-1] > self.context_length:
            raise ValueError(
                f"sequence of {tokens.shape[-1]} tokens is longer than the context length "
                f"{self.context_length}"
            )
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def twin_of(model: Model) -> Model:
    """A copy of the model's modules that shares parameters and buffers with `model`."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo=shared)


def replace_linear_layers(model: TransformerLM, made: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace every linear layer of the blocks, in place, by what `made` makes of it."""
    for layer in list(model.blocks.modules()):
        for name, child in layer.named_children():
            if isinstance(child, nn.Linear):
                setattr(layer, name, made(child))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood, computed in at least float32.

    logits [batch, seq_len, vocab_size], targets [batch, seq_len] int64; returns a scalar.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def blocks_of(model: nn.Module) -> nn.ModuleList | nn.Sequential | None:
    """The list of modules of one class that has the most parameters; None if there is none.

    That is the Transformer blocks: lists within a block, as of heads, have fewer parameters.
    """
    lists = [one for one in model.modules() if isinstance(one, nn.ModuleList | nn.Sequential)]
    alike = [one for one in lists if len(one) > 1 and len({type(block) for block in one}) == 1]
    return max(alike, key=_elements, default=None)


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
