"""FlashAttention-2 against plain attention and the backends of PyTorch."""

from lmperf.reporting.sections.flash_attention.claims import CLAIMS
from lmperf.reporting.sections.flash_attention.figure import figure
from lmperf.reporting.sections.flash_attention.tables import tables

__all__ = ["CLAIMS", "figure", "tables"]
