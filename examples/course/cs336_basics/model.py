"""A Transformer language model of which every layer is written out."""

import math

import torch
from torch import Tensor, nn

from cs336_basics.nn_utils import softmax


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int):
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        weight = torch.empty(d_out, d_in)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT


class Embedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        weight = torch.empty(vocab_size, d_model)
        self.weight = nn.Parameter(nn.init.trunc_normal_(weight, std=1.0, a=-3.0, b=3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Rotates neighbouring pairs of channels of [..., seq_len, d_head]."""

    def __init__(self, context_length: int, d_head: int, theta: float):
        super().__init__()
        rates = theta ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(context_length), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    """Attention of q, k, v: [..., seq_len, d_head]."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if is_causal:
        is_seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~is_seen, float("-inf"))
    return softmax(scores).to(v.dtype) @ v


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, rotary: RotaryEmbedding):
        super().__init__()
        self.num_heads, self.rotary = num_heads, rotary
        self.q_proj, self.k_proj = Linear(d_model, d_model), Linear(d_model, d_model)
        self.v_proj, self.output_proj = Linear(d_model, d_model), Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True)
        return self.output_proj(mixed.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            Linear(d_model, d_ff),
            Linear(d_ff, d_model),
            Linear(d_model, d_ff),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate = self.w1(x)
        return self.w2(gate * torch.sigmoid(gate) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, rotary: RotaryEmbedding):
        super().__init__()
        self.attn = CausalMultiHeadSelfAttention(d_model, num_heads, rotary)
        self.ffn = SwiGLU(d_model, d_ff)
        self.ln1, self.ln2 = RMSNorm(d_model), RMSNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class BasicsTransformerLM(nn.Module):
    """Tokens [batch, seq_len] -> logits [batch, seq_len, vocab_size]."""

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        theta: float,
    ):
        super().__init__()
        rotary = RotaryEmbedding(context_length, d_model // num_heads, theta)
        self.token_embeddings = Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, rotary) for _ in range(num_layers)
        )
        self.ln_final, self.lm_head = RMSNorm(d_model), Linear(d_model, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_final(x))
