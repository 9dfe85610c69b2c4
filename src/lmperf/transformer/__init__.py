"""The Transformer language model that the benchmarks time, and closed forms of its costs."""
