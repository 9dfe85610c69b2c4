"""Kernels, each beside its reference, its error bound and its counts of bytes and FLOPs."""
