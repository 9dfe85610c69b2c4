"""FlashAttention-2 against plain attention and the backends of PyTorch."""

from lmperf.reporting.coverage import Rests
from lmperf.reporting.sections.flash_attention import claims, filled, growth, peers
from lmperf.reporting.sections.flash_attention.figure import figure
from lmperf.reporting.sections.flash_attention.kinds import single
from lmperf.reporting.sections.flash_attention.tables import KERNELS, REFERENCE, tables

CLAIMS = (*claims.CLAIMS, *growth.CLAIMS, *filled.CLAIMS, *peers.CLAIMS)
TABLES = {
    "F1": Rests(lambda f: single(f) & f["implementation"].isin([REFERENCE, *KERNELS])),
    "F2": Rests(lambda f: ~filled.filled(f) & (f["implementation"] != REFERENCE)),
    "F3": Rests(filled.filled),
    "F4": Rests(),
}

__all__ = ["CLAIMS", "TABLES", "figure", "tables"]
