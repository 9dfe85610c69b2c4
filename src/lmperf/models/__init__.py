"""The Transformer language model and the toy model that the benchmarks time, and their accounting.

`TransformerLM` is imported on first use, so that sizes and accounting need no torch.
"""

from lmperf.models.sizes import ROPE_THETA, SIZES, VOCAB_SIZE, ModelSize

__all__ = ["ROPE_THETA", "SIZES", "VOCAB_SIZE", "ModelSize", "TransformerLM"]


def __getattr__(name: str):
    if name == "TransformerLM":
        from lmperf.models.transformer import TransformerLM

        return TransformerLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
