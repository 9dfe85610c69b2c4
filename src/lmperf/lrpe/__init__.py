"""md_lrpe_cosine: its definition, what is timed of it, its kernels, and how far each may be off."""
