"""Assignment 2: attention kernels and data parallel training."""
