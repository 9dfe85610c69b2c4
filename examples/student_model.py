"""A course's language model with every layer written out.

    implementations:
      end_to_end: { mine: "examples.student_model:LanguageModel" }

Its constructor takes the dimensions by the courses' names.
"""

import math

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int, device=None, dtype=None):
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        weight = torch.empty(d_out, d_in, device=device, dtype=dtype)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int, device=None, dtype=None):
        super().__init__()
        weight = torch.empty(vocab_size, d_model, device=device, dtype=dtype)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=0.02, a=-0.06, b=0.06))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        rms = torch.sqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide / rms * self.weight).to(x.dtype)


class Rotary(nn.Module):
    """Rotates neighbouring pairs of channels, with tables of cosines and sines."""

    def __init__(self, theta: float, d_head: int, context_length: int, device=None):
        super().__init__()
        rates = theta ** (-torch.arange(0, d_head, 2, device=device) / d_head)
        angles = torch.outer(torch.arange(context_length, device=device), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)


def softmax(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, rotary: Rotary):
        super().__init__()
        self.num_heads, self.rotary = num_heads, rotary
        self.q, self.k, self.v, self.out = (Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self._heads(layer(x)) for layer in (self.q, self.k, self.v))
        q, k = self.rotary(q), self.rotary(k)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).tril()
        weights = softmax(scores.masked_fill(~seen, float("-inf")))
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights.to(v.dtype), v)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.gate, self.up = Linear(d_model, d_ff), Linear(d_model, d_ff)
        self.down = Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class Block(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, rotary: Rotary):
        super().__init__()
        self.norm_1, self.attention = RMSNorm(d_model), Attention(d_model, num_heads, rotary)
        self.norm_2, self.feed_forward = RMSNorm(d_model), SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


class LanguageModel(nn.Module):
    """Tokens [batch, seq_len] -> logits [batch, seq_len, vocab_size]."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float,
    ):
        super().__init__()
        rotary = Rotary(rope_theta, d_model // num_heads, context_length)
        self.embedding = Embedding(vocab_size, d_model)
        blocks = (Block(d_model, num_heads, d_ff, rotary) for _ in range(num_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = RMSNorm(d_model), Linear(d_model, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
