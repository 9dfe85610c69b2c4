"""FlashAttention-2 against plain attention and the backends of PyTorch."""

from lmperf.reporting.sections.flash_attention.claims import CLAIMS as KERNEL_CLAIMS
from lmperf.reporting.sections.flash_attention.figure import figure
from lmperf.reporting.sections.flash_attention.peers import CLAIMS as GOAL_CLAIMS
from lmperf.reporting.sections.flash_attention.tables import tables

CLAIMS = (*KERNEL_CLAIMS, *GOAL_CLAIMS)

__all__ = ["CLAIMS", "figure", "tables"]
