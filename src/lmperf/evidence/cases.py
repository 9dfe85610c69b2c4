"""Which cases of a benchmark a machine measures, and which rows are theirs."""

from __future__ import annotations

from collections.abc import Iterable

from lmperf.benchmark import Benchmark, Case, ranks_of
from lmperf.dtypes import DTYPES
from lmperf.evidence.store import Row, text_of
from lmperf.machine.bf16 import SHAPE

# Benchmarks that multiply no matrices, or only a few small ones.
_HARDLY_MULTIPLY = ("lrpe", "mixed_precision")


def measurable(
    benchmark: Benchmark, cases: Iterable[Case], devices: int, emulates_bf16: bool = False
) -> list[Case]:
    """Return the cases that a machine with so many devices measures.

    emulates_bf16: whether it is a CPU that is slow in bf16; then without matmuls in bf16.
    """
    if benchmark.least_devices > devices:
        return []
    few = [case for case in cases if ranks_of(benchmark, case) <= devices]
    return [case for case in few if not (emulates_bf16 and multiplies_bf16(benchmark, case))]


def multiplies_bf16(benchmark: Benchmark, case: Case) -> bool:
    """Whether a case multiplies matrices in bf16: a CPU that emulates bf16 does not measure it.

    The matmul that shows by how much bf16 is slower is measured all the same.
    """
    if benchmark.is_check or benchmark.stem in _HARDLY_MULTIPLY:
        return False
    options = benchmark.implementation(case.implementation).options
    dtype = DTYPES.get(str(case.axes.get("dtype") or options.get("dtype")))
    shows = case.axes.get("operation", "matmul") != "matmul" or case.axes.get("shape") == SHAPE
    return not shows and dtype is not None and dtype.matmul == "bfloat16"


def texts_of(case: Case) -> tuple[str, ...]:
    """The axis values and the implementation of a case, as the texts of a CSV row."""
    return tuple(map(text_of, case.columns.values()))


def case_of_row(benchmark: Benchmark, row: Row) -> tuple[str, ...]:
    """The same texts of the case that a row belongs to."""
    return (*(row[axis.name] for axis in benchmark.axes), row["implementation"])


def asked(benchmark: Benchmark, cases: Iterable[Case], rows: Iterable[Row]) -> list[Row]:
    """Return the rows of these cases and of the phases that each has today; drop the others."""
    phases = {texts_of(case): benchmark.phases_of(case) for case in cases}
    return [row for row in rows if row["phase"] in phases.get(case_of_row(benchmark, row), ())]
