"""What to run: tables of the recommended recipe for a train step of each model size.

`choice` chooses the recipe. If there is a simpler one that is slower and not beaten either, the
note says so, as it does of recipes that take no part.

Recipes with float32 weights differ in rounding alone. bf16 weights change the loss, so that a
table of their own shows them, with their loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import NotMeasured
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import (
    counted,
    listed,
    percent,
    precise,
    rounded,
    significant,
)
from lmperf.reporting.sections.end_to_end import losses, ways
from lmperf.reporting.sections.end_to_end.choice import (
    CLOSE,
    beats,
    elsewhere,
    fastest,
    has_float32_weights,
    is_sound,
    steps,
    way_of,
)
from lmperf.reporting.sections.end_to_end.ways import BASE, STEM, Way
from lmperf.reporting.speedup import speedup_cells
from lmperf.reporting.tables import number_cells, value_cells
from lmperf.results import AXIS, DERIVED, EMPTY, HIGHER, LOWER, NO_ROW, TIME, Cell, Column, Table
from lmperf.transformer.rungs import RUNGS

TF32 = Way(ways.EAGER, ways.TF32)
# `transformer.compiled_adamw`.
ROUNDING = (
    "That AdamW computes in float32 and rounds stochastically: rounding to nearest would lose small"
    " updates (M1)."
)
_COMPILED, _TRITON = "compiled by block", "Triton attention"
_WHOLE_MODEL = ("compiled", "sdpa_compiled", "triton_compiled")
# Words of a recipe -> what they mean, for the note below the table.
MEANINGS = {
    "SDPA": "SDPA: PyTorch's attention.",
    _TRITON: f"{_TRITON}: this project's kernel.",
    "fused blocks": "Fused blocks: one kernel each for RMSNorm, RoPE and SwiGLU.",
    "loss in chunks": "Loss in chunks: logits of a part of the tokens at a time.",
}


def words(evidence: MachineEvidence, row: pd.Series) -> str:
    """A recipe for a reader: ``bf16 autocast, Triton, compiled``; ``eager TF32``."""
    name, numerics = row["implementation"], dtype_words(row["dtype"], ways.CELL)
    graph = f", {implementation_words(name)}" if name == "graph" else ""
    if row["dtype"] == ways.BF16_WEIGHTS:
        return numerics + graph  # the table says what else these have in common
    if name == ways.EAGER:
        return f"{ways.EAGER} {numerics}"
    if name not in ("fused_loss", "fused_blocks", "graph"):
        # The note below the table says that one block is compiled.
        said = implementation_words(name).replace(_COMPILED, "compiled")
        return f"{numerics}, {said.replace('Triton', _TRITON)}"
    blocks = f", {implementation_words(name)}" if name == "fused_blocks" else ""
    return f"{numerics}, {_common(evidence)}{blocks}{graph}"


def _common(evidence: MachineEvidence) -> str:
    """What the rungs with the loss in chunks have in common: ``compiled, loss in chunks``."""
    attention = f"{_TRITON}, " if newest(evidence).get("kind") == "cuda" else ""
    return f"{attention}compiled, {implementation_words('fused_loss')}"


def tables(evidence: MachineEvidence) -> list[Table]:
    """The first tables of the write-up: what to run, and what is faster with bf16 weights."""
    try:
        best, every = fastest(evidence), steps(evidence)
    except NotMeasured:
        return []
    if best.empty:
        return []
    return [_what_to_run(evidence, best, every), *_faster(evidence, best)]


def _what_to_run(evidence: MachineEvidence, best: pd.DataFrame, every: pd.DataFrame) -> Table:
    base, over = _over(evidence, best)
    columns = [
        *_recipes(evidence, best, "recipe, float32 weights"),
        _times(best),
        _column(
            "tokens/s",
            value_cells(best, best["rate"], rounded),
            "best.tokens",
            ("tokens/s", "rounded", HIGHER, DERIVED),
        ),
        _column(
            "MFU (%)",
            value_cells(best, 100 * best["mfu"]),
            "best.mfu",
            ("%", "significant", HIGHER, DERIVED),
        ),
        _peak(best, "best.peak"),
        _column(
            f"over {base.words.removeprefix(f'{ways.EAGER} ')}",
            over,
            f"best.over.{base.name}",
            ("", "ratio", HIGHER, DERIVED),
        ),
    ]
    notes = _notes(evidence, best, every)
    if any(cell.words != EMPTY for cell in over):
        notes.insert(1, f"Speed-up: over eager {dtype_words(base.dtype)}.")
    return Table(f"Recommended train step{_where(best)}", _shown(columns), " ".join(notes))


# A step in a burst is ahead of the same step back to back by at most about this fraction.
_BURST_AHEAD = 0.15


def _notes(evidence: MachineEvidence, best: pd.DataFrame, every: pd.DataFrame) -> list[str]:
    """The sentences below the first table, without that on the speed-up."""
    left_out = gates.shown(every) & ~is_sound(evidence, every) & has_float32_weights(every)
    burst = best["burst"].all()
    notes = [
        f"Times: {'single calls with pauses' if burst else 'steps back to back'}, median"
        " (interval)."
        f" Tokens/s{' and MFU' if best['mfu'].notna().any() else ''} follow from them.",
    ]
    said = ", ".join(words(evidence, row) for _, row in best.iterrows())
    notes += [meaning for name, meaning in MEANINGS.items() if name in said]
    if "compiled" in said and not best["implementation"].isin(_WHOLE_MODEL).any():
        notes.append("Compiled: one block, which all layers share.")
    rivals = having(every[gates.shown(every) & has_float32_weights(every)], size=[*best["size"]])
    number = rivals["size"].value_counts()
    if lone := in_order("size", number.index[number == 1]):
        notes.append(f"At {listed(lone)} no other recipe with float32 weights was measured.")
    notes += _choices(evidence, best, rivals[is_sound(evidence, rivals)])
    if best["tied"].any():
        tied = listed(best.loc[best["tied"], "size"])
        notes.append(f"At {tied} the lead over a simpler recipe is unresolved.")
    if not has_float32_weights(every).all() and _faster_rows(evidence, best).empty:
        notes.append("No recipe with bf16 weights is known to be faster.")
        narrow = every[~has_float32_weights(every)]
        notes += _on_another_gpu(evidence, narrow, best)
    if left_out.any():
        notes.append(f"Left out, since marked: {counted(int(left_out.sum()), 'step')}.")
    notes += _unchecked(evidence, every)
    notes += _larger_batches(evidence, best)
    marked = every[left_out & ~every["size"].isin(best["size"])]
    for size, said in _shortest(evidence, marked).items():
        notes.append(f"No line for {size}: its fastest step is marked ({said}).")
    return notes


def _unchecked(evidence: MachineEvidence, every: pd.DataFrame) -> list[str]:
    """A sentence on the steps of these cells whose check does not fit into memory."""
    cell = ["size", "context_length", "batch"]
    frame = having(evidence.frame(STEM), phase=ways.STEP, status="unchecked")
    rows = frame.merge(every[cell].drop_duplicates(), on=cell)
    if rows.empty:
        return []
    sizes, number = listed(in_order("size", rows["size"])), counted(len(rows), "step")
    return [f"Left out, since the check does not fit into memory: {number} ({sizes})."]


def _larger_batches(evidence: MachineEvidence, best: pd.DataFrame) -> list[str]:
    """Sentences on the sizes of which a larger batch gives more tokens per second."""
    frame = having(evidence.frame(STEM), phase=ways.STEP)
    frame = ways.with_rates(evidence, frame[is_sound(evidence, frame)])
    frame = frame[has_float32_weights(frame) & ~frame["burst"]]
    frame = frame[~elsewhere(evidence, frame, best)]
    notes = []
    for _, row in best[~best["burst"]].iterrows():
        rows = having(frame, size=row["size"], context_length=row["context_length"])
        rows = rows[rows["batch"] > row["batch"]]
        if rows.empty:
            continue
        most = rows.loc[rows["rate"].idxmax()]
        if most["rate"] > (1 + CLOSE) * row["rate"]:
            gain = percent(most["rate"] / row["rate"] - 1, 0)
            memory = significant(ways.peak(rows)[most.name])
            recipe = ""
            if way_of(most) != way_of(row):
                recipe = f", with {words(evidence, most)}"
            notes.append(
                f"At batch {most['batch']:g} {row['size']} makes {gain} more tokens/s, in {memory}"
                f" GiB{recipe}."
            )
    return ["With memory left, raise the batch.", *notes] if notes else []


def _shortest(evidence: MachineEvidence, rows: pd.DataFrame) -> dict[str, str]:
    """Size -> the recipe and the time of the shortest step, in words."""
    found = {}
    for size in in_order("size", rows["size"]):
        row = rows.loc[having(rows, size=size)["step_ms"].idxmin()]
        found[size] = f"{words(evidence, row)}, {significant(row['step_ms'])} ms"
    return found


def _choices(evidence: MachineEvidence, best: pd.DataFrame, rivals: pd.DataFrame) -> list[str]:
    """Sentences on recipes that the first table leaves out by its rules, not by their times.

    rivals: the sound steps with float32 weights of the sizes of ``best``.
    """
    another = _on_another_gpu(evidence, rivals, best)
    rivals = rivals[~_apart(evidence, rivals, best)]
    both = rivals.merge(best[["size", "burst", "step_ms"]], on="size", suffixes=("", "_best"))
    single = both[both["burst"] & ~both["burst_best"]]
    single = single[single["step_ms"] < (1 + _BURST_AHEAD) * single["step_ms_best"]]
    notes = ["Burst: single calls with pauses."] if best["burst"].nunique() > 1 else []
    notes += _simplest(rivals, best)
    if sizes := in_order("size", single["size"]):
        notes.append(f"At {listed(sizes)} other recipes were timed in bursts alone: not compared.")
    return notes + another


def _simplest(rivals: pd.DataFrame, chosen: pd.DataFrame) -> list[str]:
    """A sentence on the sizes at which a recipe was chosen although one of these was faster."""
    both = rivals.merge(chosen[["size", "burst", "step_ms"]], on="size", suffixes=("", "_chosen"))
    faster = both["step_ms"] < both["step_ms_chosen"]
    sizes = in_order("size", both.loc[faster & (both["burst"] == both["burst_chosen"]), "size"])
    if not sizes:
        return []
    return [
        f"Shown at {listed(sizes)}: the simplest recipe that is within {percent(CLOSE, 0)} of the"
        " fastest and not measurably slower."
    ]


def _apart(evidence: MachineEvidence, rows: pd.DataFrame, best: pd.DataFrame) -> pd.Series:
    """Whether each row is sound, but another GPU timed it back to back than the row of ``best``."""
    return elsewhere(evidence, rows, best) & ~rows["burst"] & is_sound(evidence, rows)


def _on_another_gpu(evidence: MachineEvidence, rows: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """A sentence for each size on the shortest of these steps that another GPU timed.

    Steps that are longer than that of ``best`` by more than ``CLOSE`` are not named.
    """
    rows = rows[_apart(evidence, rows, best)]
    ms = best.set_index("size")["step_ms"]
    rows = rows[rows["step_ms"] < (1 + CLOSE) * rows["size"].map(ms)]
    return [
        f"Not compared, since another GPU (or one not recorded) timed it: {said} ({size})."
        for size, said in _shortest(evidence, rows).items()
    ]


def _over(evidence: MachineEvidence, best: pd.DataFrame) -> tuple[Way, pd.Series]:
    """Speed-ups of the rows over eager TF32; over eager float32 if no row has one over TF32."""
    for base in (TF32, BASE):
        cells = pd.Series([_DASH] * len(best), best.index, dtype=object)
        for row in best.index:
            way = way_of(best.loc[row])
            if way != base:
                found = speedup_cells(evidence, STEM, way.series, base.series)
                cells[row] = found[row]
        if any(cell.value is not None for cell in cells):
            break
    return base, cells


def _faster(evidence: MachineEvidence, best: pd.DataFrame) -> list[Table]:
    """The table of sizes at which bf16 weights are faster, with their loss; none if there is none.

    Each row is compared with the recipe of ``best`` for its size, if it has one.
    """
    rows, base = _faster_rows(evidence, best), best.set_index("size")
    if rows.empty:
        return []
    cells, alone = [], [size for size in rows["size"] if size not in base.index]
    for label, row in rows.iterrows():
        if row["size"] in alone:
            cells.append(_DASH)
            continue
        other = way_of(base.loc[row["size"]])
        cells.append(speedup_cells(evidence, STEM, way_of(row).series, other.series)[label])
    found = [loss(evidence, row["size"], rung_of(row)) for _, row in rows.iterrows()]
    at = rows.index
    columns = [
        *_recipes(evidence, rows, "recipe, bf16 weights"),
        _times(rows),
        _column(
            "over the above",
            pd.Series(cells, at, dtype=object),
            "faster.over.best",
            ("", "ratio", HIGHER, DERIVED),
        ),
        _peak(rows, "faster.peak"),
        _column(
            "loss",
            pd.Series([_loss_cell(one) for one in found], at, dtype=object),
            "faster.loss",
            ("", "precise", LOWER, "observed"),
        ),
        _column(
            "mean loss, float32 weights",
            number_cells(pd.Series([one["base"] for one in found], at, dtype=float), precise),
            "float32.loss",
            ("", "precise", LOWER, "observed"),
        ),
    ]
    common = f"{_common(evidence)}, {implementation_words('fused_blocks')}"
    trained = losses.trained_on(evidence, rows["size"])
    every = steps(evidence)
    every = every[~has_float32_weights(every)]
    shown = pd.concat([rows, best[~best["size"].isin(rows["size"])]])
    notes = [f"All: {common}, compiled AdamW.", ROUNDING, trained]
    notes += _on_another_gpu(evidence, every, shown)
    is_usable = is_sound(evidence, every)
    notes += _simplest(every[is_usable & ~_apart(evidence, every, shown)], rows)
    others = every[is_usable & ~every["size"].isin(shown["size"])]
    away = {*others.loc[elsewhere(evidence, others, BASE.rows(steps(evidence))), "size"]}
    for size, said in _shortest(evidence, others).items():
        why = "a marked step is faster"
        if size in away:
            why = "another GPU than that of eager float32 timed it"
        notes.append(f"No line for {size}: {why} ({said}).")
    if alone:
        alone = listed(alone)
        notes.append(f"At {alone} no step with float32 weights is recommended to compare with.")
    what = "Recommended, with bf16 weights" if alone else "Faster, with bf16 weights"
    return [Table(f"{what}{_where(rows)}", _shown(columns), " ".join(filter(None, notes)))]


def _faster_rows(evidence: MachineEvidence, best: pd.DataFrame) -> pd.DataFrame:
    """The fastest recipes of all that have bf16 weights and beat the row of ``best``, if any."""
    every = fastest(evidence, any_weights=True)
    rows, base = every[~has_float32_weights(every)], best.set_index("size", drop=False)
    faster = [
        row["size"] not in base.index or beats(evidence, row, base.loc[row["size"]])
        for _, row in rows.iterrows()
    ]
    return rows[pd.Series(faster, rows.index, dtype=bool)]


def _loss_cell(found: pd.Series) -> Cell:
    if math.isnan(found["loss"]):
        return Cell("not measured", state=NO_ROW)
    return losses.loss_cell(found)


def rung_of(row: pd.Series) -> str | None:
    """The name of the rung that a train step is; None if it is none."""
    return next((r.name for r in RUNGS if (r.dtype, r.implementation) == _key(row)), None)


def _key(row: pd.Series) -> tuple[str, str]:
    return row["dtype"], row["implementation"]


def loss(evidence: MachineEvidence, size: str, rung: str | None) -> pd.Series:
    """The row of `losses.losses` for a rung; NaN if it is unknown."""
    found = losses.losses(evidence)
    if (size, rung) not in found.index:
        return pd.Series(math.nan, found.columns)
    return found.loc[(size, rung)]


def _where(rows: pd.DataFrame) -> str:
    """Context and batch for a caption, as far as all rows share them."""
    shared = [
        f", {word} {rows[name].iloc[0]:g}"
        for name, word in (("context_length", "context"), ("batch", "batch"))
        if rows[name].nunique() == 1
    ]
    return "".join(shared)


def size_cells(rows: pd.DataFrame) -> Column:
    """The column of sizes; a size says its context or batch if the rows do not share it."""
    apart = {
        name: word
        for name, word in (("context_length", "context"), ("batch", "batch"))
        if rows[name].nunique() > 1
    }
    cells = []
    for _, row in rows.iterrows():
        more = "".join(f", {word} {row[name]:g}" for name, word in apart.items())
        cells.append(Cell(row["size"] + more, row["size"] + more))
    return Column("size", "size", tuple(cells), role=AXIS)


def _recipes(evidence: MachineEvidence, rows: pd.DataFrame, header: str) -> list[Column]:
    said = [words(evidence, row) for _, row in rows.iterrows()]
    return [
        size_cells(rows),
        Column("recipe", header, tuple(Cell(text, text) for text in said), align="left"),
    ]


def _times(rows: pd.DataFrame) -> Column:
    """Times with their intervals: sustained, else burst; the header says so if all are burst."""
    burst = bool(rows["burst"].all())
    cells = ways.times(rows, brackets=True)
    return _column(
        f"{ways.burst_words('time', burst)} (ms)", cells, "best", ("ms", "significant", LOWER, TIME)
    )


def _peak(rows: pd.DataFrame, name: str) -> Column:
    """The column of peak memory in GiB."""
    kind = ("GiB", "significant", LOWER, "observed")
    cells = value_cells(rows, ways.peak(rows))
    return _column("peak (GiB)", cells, name, kind)


def _column(header: str, cells: Sequence[Cell], name: str, about: tuple) -> Column:
    return Column(name, header, tuple(cells), *about)


def _shown(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns without those that have only dashes."""
    return tuple(c for c in columns if any(cell.words != EMPTY for cell in c.cells))


_DASH = Cell(EMPTY, state=NO_ROW)
