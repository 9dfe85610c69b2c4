"""The benchmark of md_lrpe_cosine: reference, timed problem, error bounds and kernels."""
