"""Rows of text as a frame, judged once.

Every rule on what may be shown, compared or concluded is a column that `judged` adds. Neither
sections nor templates know these rules:

    state        why the row has no result to show (a status, `failed_check`, `impossible`); or None
    words        the state in words
    signs        names of the signs behind a number: capped, loaded, stale
    waits        whether a step on a GPU waited for the CPU: its time is that of the host
    holds        whether a sentence may rest on the row: it is neither loaded nor stale
    noise_kind   kernel, pass over memory, step, or step that waits for the CPU
    ms           the median time: of calls in turn, or of a train step back to back
    low_ms, high_ms   the interval of `ms`; of steps the least and greatest of ten stretches
    mean_ms, std_ms   of its rounds or stretches
    tflops, share (of the matmul ceiling), mfu (share of the data sheet in bf16), tokens_s, peak_gib
    mask         causal or full
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lmperf.benchmark import COMMON_COLUMNS, Benchmark
from lmperf.names import STATUSES, size_words
from lmperf.reporting import untrusted
from lmperf.reporting.cells import SIGNS
from lmperf.reporting.pairs import rounds
from lmperf.reporting.words import GIB, MIB, absent

# Kinds of rows, of which two processes differ by more and more.
KERNEL, STEP, WAITING = "kernel", "step or phase", "step or phase that waits for the CPU"
# A kernel with fewer FLOPs than bytes: its time depends on where its tensors lie in memory too.
PASS = "pass over memory"
WIDE = 0.05  # a step whose interval goes further from its time may have waited
WITHHELD = ("failed_check", "impossible")
# Columns of a row that tables and figures name, and what they are of a line without them.
NEUTRAL = {"state": None, "words": "", "signs": None, "waits": False, "key": None}
# What a withheld row does not keep: times, and rates of them.
_WITHHELD_NUMBERS = re.compile(r"(^|_)(ms|us|s|gbps|tflops|share|mfu)$|^peak_(mib|gib)$")


def typed(rows: Sequence[Mapping[str, str]], benchmark: Benchmark) -> pd.DataFrame:
    """Rows of text as a frame of the declared types; a column that no row has is empty.

    A column that the benchmark does not declare, of another version, has numbers if all are.

    Raises:
        ValueError: a text in a column of numbers cannot be parsed.
    """
    kinds = benchmark.kinds | {column.name: column.kind for column in COMMON_COLUMNS}
    others = dict.fromkeys(name for row in rows for name in row if name not in kinds)
    columns = {}
    for name in (*kinds, *others):
        # Not by pandas, which takes as long for each empty column as for a thousand rows.
        texts = [row.get(name) or np.nan for row in rows]
        kind = kinds.get(name, str)
        if kind is bool:
            texts = [{"True": True, "False": False}.get(text, np.nan) for text in texts]
        elif kind is not str:
            texts = [np.nan if text == "nan" else text for text in texts]
        column = pd.Series(texts, dtype=object)
        if kind not in (bool, str):
            column = pd.to_numeric(column)
        elif name in others:
            numbers = pd.to_numeric(column, errors="coerce")
            column = numbers if numbers.notna().equals(column.notna()) else column
        columns[name] = column
    frame = untrusted.neutral_frame(pd.DataFrame(columns))
    return frame.assign(size=frame["size"].map(size_words)) if "size" in frame else frame


def judged(
    rows: pd.DataFrame, floor_ms, stale: frozenset[str], is_step: bool, at_limit: pd.Series
) -> pd.DataFrame:
    """The rows with the columns of the module's docstring.

    at_limit: which rows were timed at the power limit. Such a step does not wait for the host: its
    profile, at a higher clock, is shorter than its time for this reason.
    """
    ok = rows["status"] == "ok"
    state = rows["status"].mask(ok, None).astype(object)
    state[ok & (rows["median_ms"] < floor_ms)] = "impossible"
    words = state.map({**STATUSES, "failed_check": "withheld", "impossible": "withheld"})
    words = words.fillna("").astype(object)
    oom = state == "oom"
    words[oom] = [_oom(*sizes) for sizes in rows.loc[oom, ["requested_bytes", "free_bytes"]].values]
    marks = rows["marks"].fillna("").map(lambda text: text.split(";"))
    loaded = marks.map(lambda names: "loaded" in names).astype(bool)
    signs = [
        tuple(sign for sign in SIGNS if sign in names or (sign == "stale" and key in stale))
        for names, key in zip(marks, rows["key"], strict=True)
    ]
    ms = rows["median_ms"]
    # A rank that waits for a late one is busy in NCCL; only the spread shows that it waits.
    wide = (rows["high_ms"] / ms > 1 + WIDE) | (rows["low_ms"] / ms < 1 - WIDE)
    sends = rows.get("communication_ms", pd.Series(np.nan, rows.index)).notna()
    waits = (rows["bound"] == "host") & ~at_limit | (sends & wide)
    # Copies have bytes and no FLOPs; steps have no bytes.
    is_pass = rows["flops"].fillna(0) < rows.get("bytes", pd.Series(np.nan, rows.index))
    kind = np.select([waits, is_pass], [WAITING, PASS], STEP if is_step else KERNEL)
    causal = rows.get("causal", pd.Series(None, rows.index, object))
    tokens = rows.get("tokens", pd.Series(np.nan, rows.index))
    # The allocator does not count the memory of a CUDA graph as allocated.
    pool = rows["pool_mib"].fillna(0) if "pool_mib" in rows else 0
    parts = pd.DataFrame(rounds(rows["rounds_ms"]), rows.index)
    return rows.assign(
        state=state,
        words=words,
        signs=signs,
        waits=waits,
        noise_kind=kind,
        holds=state.isna() & ~loaded & ~rows["key"].isin(stale),
        ms=ms,
        mean_ms=parts.mean(axis=1),
        std_ms=parts.std(axis=1),
        tflops=rows["flops"] / ms / 1e9,
        tokens_s=1e3 * tokens / ms,
        peak_gib=(rows["peak_mib"] + pool) / 1024,
        mask=causal.map({True: "causal", False: "full"}),
    )


def masked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, of which those that are withheld have no times and no peaks."""
    is_withheld = rows["state"].isin(WITHHELD)
    if not is_withheld.any():
        return rows
    numbers = [name for name in rows if _WITHHELD_NUMBERS.search(name)]
    return rows.assign(**{name: rows[name].mask(is_withheld) for name in numbers})


def _oom(asked: float, free: float) -> str:
    sizes = (("asked", asked), ("free", free))
    words = [f"{word} {_size(size)}" for word, size in sizes if not absent(size)]
    return f"OOM ({', '.join(words)})" if words else "OOM"


def _size(size: float) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / MIB:,.0f} MiB"


def of_one_call(rows: pd.DataFrame) -> pd.DataFrame:
    """Ceilings with times of one call: a round under load has as many calls as fit into it."""
    calls = rows["calls"].fillna(1)
    names = ("median_ms", "ms", "low_ms", "high_ms", "mean_ms", "std_ms")
    times = {name: rows[name] / calls for name in names}
    of_rounds = rounds(rows["rounds_ms"]) / calls.to_numpy()[:, None]
    one_call = [";".join(map(repr, row[~np.isnan(row)].tolist())) or None for row in of_rounds]
    return rows.assign(**times, rounds_ms=one_call)
