"""What bounds the forward of plain attention on the device: its FLOPs or its bytes.

The rule is that of `lmperf.reporting.bound`. The bytes are those of q, k, v, the output and the
passes over the matrix of scores.
"""

from __future__ import annotations

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.bound import bound
from lmperf.reporting.ceilings import copy_ceiling, matmul_ceiling, peak_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import significant
from lmperf.reporting.side_by_side import each, memory, side_by_side, text, time
from lmperf.reporting.tables import medians, text_cells, value_cells
from lmperf.results import Table

STEM = "attention"
CELL = ["d_head", "seq_len", "batch", "causal"]
# Passes over matrices of the size of the scores. Forward: q k^T writes it, scaling and softmax read
# and write it, the product with v reads it. Backward: the gradient of the weights is written, the
# one of v reads the weights, softmax reads both and writes one, scaling reads and writes one, the
# gradients of q and k read it. Compiled, scaling and mask are part of the kernel of softmax.
PASSES = {
    ("eager", "forward"): 6,
    ("eager", "backward"): 9,
    ("compiled", "forward"): 4,
    ("compiled", "backward"): 7,
}
# A mask reads and writes the matrix once more.
PASSES_OF_MASK = {"eager": 2}


def note(evidence: MachineEvidence, dtype: str) -> str:
    """The note that explains the words of ``bound``, with the two rates of the machine."""
    copy = copy_ceiling(evidence)
    at = f" (of a large copy: {significant(copy)} GB/s)" if copy else ""
    return (
        f"Bound by: the longer of FLOPs at {peak_words(evidence, dtype) or 'the peak matmul'} and"
        f" bytes at copy speed{at}. *Neither*: the two explain less than half of the time."
    )


def bounds(evidence: MachineEvidence) -> pd.DataFrame:
    """A row for each timed forward of eager attention, with what bounds it.

    Columns are added: ``moved`` (bytes read and written), ``compute_ms`` and ``memory_ms`` (the
    least times that FLOPs and bytes need), and ``bound`` (see `lmperf.reporting.bound`).
    No row without ceilings of matmul and copy.
    """
    return evidence.once((STEM, "bounds"), lambda: _bounds(evidence))


def _bounds(evidence: MachineEvidence) -> pd.DataFrame:
    frame = evidence.frame(STEM)
    rows = having(frame[gates.shown(frame)], implementation="eager", phase="forward")
    rates = rows["dtype"].map(lambda dtype: matmul_ceiling(evidence, dtype)).astype(float)
    copy = copy_ceiling(evidence) or float("nan")
    moved = moved_bytes(rows)
    rows = rows.assign(
        moved=moved, compute_ms=rows["flops"] / rates / 1e9, memory_ms=moved / copy / 1e6
    )
    rows = rows.dropna(subset=["compute_ms", "memory_ms", "median_ms"])
    times = rows[["compute_ms", "memory_ms", "median_ms"]].itertuples(index=False)
    return rows.assign(bound=[bound(*each) for each in times])


def moved_bytes(rows: pd.DataFrame) -> pd.Series:
    """The bytes that each call reads and writes: inputs, outputs, and passes over the scores.

    The column `bytes` has a logsumexp in float32 as well, once in each phase. Implementations in
    ``PASSES`` store the scores and have none; others need not store the scores.
    """
    names, phases, causal = rows["implementation"], rows["phase"], rows["causal"].astype(int)
    parts = zip(names, phases, strict=True)
    stored = pd.Series([PASSES.get(part, 0) for part in parts], rows.index)
    passes = stored + causal * names.map(PASSES_OF_MASK).fillna(0)
    scores = rows["batch"] * rows["seq_len"] ** 2 * rows["dtype"].map(lambda d: dtype_of(d).bytes)
    logsumexp = rows["batch"] * rows["seq_len"] * dtype_of("float32").bytes
    return rows["bytes"] - logsumexp.where(stored > 0, 0) + passes * scores


def bound_tables(evidence: MachineEvidence) -> list[Table]:
    """A table for each dtype: the least times of FLOPs and bytes beside the time of a forward."""
    if evidence.frame(STEM) is None:
        return []
    rows = bounds(evidence)
    parts = (having(rows, dtype=dtype) for dtype in in_order("dtype", rows["dtype"]))
    return each(*(_table(evidence, part) for part in parts))


def _table(evidence: MachineEvidence, rows: pd.DataFrame) -> Table | None:
    columns = [
        time("forward", medians(rows), "forward.eager"),
        time("FLOPs at the peak matmul", value_cells(rows, rows["compute_ms"]), "compute"),
        memory("bytes", value_cells(rows, rows["moved"] / 2**20), "moved"),
        time("bytes at copy speed", value_cells(rows, rows["memory_ms"]), "memory"),
        time("host", value_cells(rows, rows["host_ms"]), "host"),
        text("bound by", text_cells(rows["bound"]), "bound"),
    ]
    dtype = rows["dtype"].iloc[0]
    caption = f"What bounds the forward, {dtype_words(dtype)}"
    words = note(evidence, dtype)
    if rows["host_ms"].notna().any():
        words += " Host: the time to launch the forward, which its own time excludes."
    return side_by_side(caption, rows, CELL, columns, words)
