"""Configurations with a few small cells of one benchmark, which tests measure or make up."""

ATTENTION = """
preset: cpu
machine: here
benchmarks: [attention]
grid:
  attention:
    {{batch: [1], d_head: [16], seq_len: {seq_lens}, dtype: [float32],
     implementation: [{implementations}]}}
"""
FLASH_ATTENTION = """
preset: cpu
machine: here
benchmarks: [flash_attention]
grid:
  flash_attention:
    {batch: [1], heads: [1], seq_len: [32], d_head: [16], dtype: [float32], causal: [true],
     implementation: [eager, sdpa]}
"""


def attention(*seq_lens: int, implementations: str = "eager") -> str:
    """Return a configuration with one cell of `attention` for each length."""
    return ATTENTION.format(seq_lens=[*seq_lens], implementations=implementations)
