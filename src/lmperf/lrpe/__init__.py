"""md_lrpe_cosine: definition and reference, timed problem, error bounds, kernels."""
