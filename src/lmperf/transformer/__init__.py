"""The Transformer language model that the benchmarks time, and closed forms of its costs.

`TransformerLM` is imported on first use: sizes and closed forms need no torch.
"""

from lmperf.transformer.sizes import ROPE_THETA, SIZES, VOCAB_SIZE, ModelSize

__all__ = ["ROPE_THETA", "SIZES", "VOCAB_SIZE", "ModelSize", "TransformerLM"]


def __getattr__(name: str):
    if name == "TransformerLM":
        from lmperf.transformer.model import TransformerLM

        return TransformerLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
