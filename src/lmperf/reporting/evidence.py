"""The evidence of one machine as the renderer meets it, and the order in which it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

TEXT = frozenset(
    (
        *("size", "dtype", "operation", "experiment", "subject", "layout", "shape"),
        *("implementation", "phase", "status", "reason", "rounds_ms", "again_ms", "together"),
        *("tensor", "kind", "observed_dtype", "instrument"),
        *("environment", "commit", "measured_at", "key"),
        *("stem", "started_at", "finished_at", "preset"),
    )
)
NUMBERS = frozenset(
    (
        *("batch", "heads", "seq_len", "d_head", "context_length", "parameters", "tokens"),
        *("extra_tokens", "step", "position", "instances"),
        *("flops", "bytes", "tflops", "value", "exact", "repetitions", "seed", "compile_s"),
    )
)
NUMBER_SUFFIXES = ("_ms", "_us", "_mib", "_gbps", "_bytes", "_error", "_bound", "_share")
NUMBER_PREFIXES = ("error_", "bound_")
TRUTHS = frozenset(("causal", "cuda_graph"))
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

MEASURED_NUMBERS = (
    *("requested_bytes", "free_bytes", "median_ms", "mean_ms", "std_ms", "compile_s"),
    *("flops", "bytes", "tflops", "bandwidth_gbps", "parameters", "tokens", "value", "exact"),
    *("max_error", "error_bound", "error_out", "error_lse", "error_dq", "error_dk", "error_dv"),
    *("error_dx", "error_angle", "error_norm", "error_inverse", "error_difference"),
    *("peak_mib", "saved_mib", "resident_mib", "predicted_mib"),
    *("predicted_forward_mib", "predicted_backward_mib"),
    *("parameters_mib", "gradients_mib", "optimizer_mib", "activations_mib"),
)
MEASURED_TEXT = (
    *("reason", "rounds_ms", "again_ms", "together", "environment"),
    *("tensor", "kind", "observed_dtype", "instrument"),
)

ORDERS = {
    "stem": [
        "ceilings",
        "end_to_end",
        "warmup",
        "profiles",
        "mixed_precision",
        "memory",
        "memory_timeline",
        "attention",
        "flash_attention",
        "lrpe",
        "across",
        "published",
        "cost",
    ],
    "size": ["tiny", "small", "medium", "large", "xl", "2.7B"],
    "dtype": ["float32", "tf32", "float16", "bfloat16", "autocast_float16", "autocast_bfloat16"],
    "implementation": [
        "eager",
        "torch",
        "compiled",
        "compiled_blocks",
        "triton",
        "triton_cached",
        "tiled",
        "sdpa",
        "sdpa_cudnn",
        "sdpa_flash",
        "sdpa_efficient",
        "flex",
        "copy",
    ],
    "subject": [
        "float32 + float32",
        "float16 + float16",
        "float32 + float16",
        "float32 + float32(float16)",
        "bfloat16 + bfloat16",
        "float32 + bfloat16",
        "float32 + float32(bfloat16)",
        "toy",
        "transformer_block",
    ],
    "phase": ["forward", "backward", "forward_backward", "train_step"],
}


@dataclass
class MachineEvidence:
    """What one machine measured.

    ``facts`` is machine.json; ``frames`` maps a stem to its rows (see ``read_frame``); ``stale``
    maps a stem to the one-line names of rows whose code or environment has since changed;
    ``damaged`` maps a stem to the reason why its evidence is withheld; ``missing`` maps a stem to
    the names of configured cells without a row, ``lacking`` to the same as rows without a status;
    ``left_out`` maps a stem to why the configuration does not ask for it, or not for all of it;
    ``cost`` has a row for each job that measured, None where none was recorded.
    """

    machine: str
    facts: dict = field(default_factory=dict)
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    stale: dict[str, list[str]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, pd.DataFrame] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    cost: pd.DataFrame | None = None
    derived: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: tuple, make: Callable):
        """``make()`` of the first call with this key; frames must not change afterwards."""
        if key not in self.derived:
            self.derived[key] = make()
        return self.derived[key]

    def frame(self, stem: str) -> pd.DataFrame | None:
        """The rows of a stem in reading order; None where there are none or they are damaged."""
        frame = self.frames.get(stem)
        if frame is None or stem in self.damaged or frame.empty:
            return None
        return self.once(("frame", stem), lambda: completed(in_reading_order(frame)))

    def has_evidence(self) -> bool:
        """Whether there is a row to show."""
        return any(self.frame(stem) is not None for stem in self.frames)


def read_frame(path: Path) -> pd.DataFrame:
    """Read an evidence CSV: text as str, truth values as bool, numbers as numbers, empty as NaN.

    Raises ValueError, naming file and column, when a number or a truth value is neither.
    """
    raw = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    columns = {name: _typed(path, raw[name]) for name in raw.columns}
    return pd.DataFrame(columns, columns=raw.columns)


def _typed(path: Path, column: pd.Series) -> pd.Series:
    name = str(column.name)
    if name in TRUTHS:
        return _booleans(path, column)
    if name in TEXT:
        return column.astype(object)
    numbers = pd.to_numeric(column, errors="coerce")
    if not (numbers.isna() & column.notna() & (column.str.lower() != "nan")).any():
        return numbers
    if _is_number(name):
        raise ValueError(f"{path}: column {name!r} holds something that is no number")
    return column


def _is_number(name: str) -> bool:
    known = name in NUMBERS
    return known or name.endswith(NUMBER_SUFFIXES) or name.startswith(NUMBER_PREFIXES)


def _booleans(path: Path, column: pd.Series) -> pd.Series:
    values = column.str.lower().map(BOOLEANS)
    if (values.isna() & column.notna()).any():
        raise ValueError(f"{path}: column {column.name!r} holds neither True nor False")
    return values.astype(bool) if values.notna().all() else values.astype(object)


def completed(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with every column that the report reads: those that no row has are empty.

    A benchmark of which nothing could run has no column of what it would have measured.
    """
    numbers = {n: np.nan for n in MEASURED_NUMBERS if n not in frame.columns}
    empty = pd.Series(None, range(len(frame)), object)
    text = {n: empty for n in MEASURED_TEXT if n not in frame.columns}
    # A copy joins columns of a kind, which every later selection of rows is quicker for.
    return frame.reset_index(drop=True).assign(**numbers, **text).copy()


def axes(frame: pd.DataFrame) -> list[str]:
    """The axes of a benchmark: the columns that stand before ``implementation``."""
    columns = list(frame.columns)
    return columns[: columns.index("implementation")]


def in_order(name: str, values) -> list:
    """Distinct values of a column in reading order: known names first, the rest sorted."""
    distinct = list(pd.unique(pd.Series(values).dropna()))
    known = ORDERS.get(name, [])
    return [v for v in known if v in distinct] + sorted(v for v in distinct if v not in known)


def in_reading_order(frame: pd.DataFrame, first: Sequence[str] = ()) -> pd.DataFrame:
    """Rows sorted by ``first``, the axes, implementation and phase, each in its reading order."""
    keys = list(dict.fromkeys([*first, *axes(frame), "implementation", "phase"]))
    ranks = [_ranks(frame[name]) for name in reversed(keys)]
    return frame.iloc[np.lexsort(ranks)]


def _ranks(column: pd.Series) -> np.ndarray:
    ordered = in_order(str(column.name), column)
    return pd.Categorical(column, categories=ordered, ordered=True).codes


def row_names(frame: pd.DataFrame) -> list[str]:
    """One line a row, as in ``seq_len=128, dtype=float32, eager, forward``."""
    names = axes(frame)
    cells = (
        ", ".join(f"{n}={_plain(v)}" for n, v in zip(names, row, strict=True) if not _absent(v))
        for row in frame[names].itertuples(index=False)
    )
    rest = zip(cells, frame["implementation"], frame["phase"], strict=True)
    return [", ".join(part for part in parts if part) for parts in rest]


def _absent(value) -> bool:
    return value is None or value != value


def _plain(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
