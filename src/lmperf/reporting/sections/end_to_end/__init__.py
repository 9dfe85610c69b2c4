"""End to end: a training step of Transformer language models, by phase."""

from lmperf.reporting.coverage import Rests, having
from lmperf.reporting.sections.end_to_end import claims, compiling, growth, numerics
from lmperf.reporting.sections.end_to_end.figure import figure
from lmperf.reporting.sections.end_to_end.tables import tables

CLAIMS = (*claims.CLAIMS, *growth.CLAIMS, *compiling.CLAIMS, *numerics.CLAIMS)
TABLES = {
    "E1": Rests(),
    "E3": Rests(
        having(implementation=("eager", "compiled", "compiled_blocks"), dtype=("float32", "tf32"))
    ),
    "E4": Rests(having(implementation=("eager", "compiled", "compiled_blocks"))),
    "E5": Rests(shown_in="beside other machines in the overview, `report/report.md`"),
}

__all__ = ["CLAIMS", "TABLES", "figure", "tables"]
