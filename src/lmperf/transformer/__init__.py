"""The Transformer language model that benchmarks time, and closed forms of its FLOPs and memory."""
