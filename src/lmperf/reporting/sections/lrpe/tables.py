"""L1: times, rates and the share of a copy's speed; L2: peak memory beside its closed form."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import EMPTY, error, percent, signed_percent, significant
from lmperf.reporting.sections.lrpe.rows import (
    CACHED,
    CELL,
    COPY,
    STEM,
    TRITON,
    main_dtype,
    measured_leads,
    shaped,
)
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import Series, speedup_cells, speedups
from lmperf.reporting.tables import (
    KERNELS,
    Lines,
    Owed,
    Table,
    kernel_times,
    status_words,
    value_cells,
)

CHECK = "lrpe_check"
HEAD_LINES = 12
PEAKS = " Peak: the higher of the two directions."
RATIOS = (
    "GB/s: the bytes that have to move over the median time. % of copy and speed-ups: the median"
    " of the ratios of the rounds, with its interval."
)
CHECKED = {
    "out": "output",
    "dx": "dX",
    "angle": "angle",
    "norm": "length kept",
    "inverse": "backward inverts",
    "difference": "difference alone",
}


def head(evidence: MachineEvidence) -> Lines | None:
    """A small, a middle and the largest shapes of each number of axes: rates, speed-ups, peaks."""
    frame = evidence.frame(STEM)
    if frame is None or not measured_leads(frame):
        return None
    lead, *peers = measured_leads(frame)
    frame = _telling(shaped(having(frame, dtype=main_dtype(frame))))
    columns = []
    for phase in in_order("phase", frame["phase"]):
        rows = having(frame, phase=phase, implementation=lead)
        share = _share_cells(evidence, lead, brackets=False).reindex(rows.index)
        rates = value_cells(rows, _gbps(rows))
        both = rates.where(share.isna(), rates + " (" + share.fillna("") + ")")
        columns.append(Beside(f"{phase_words(phase)} (GB/s, of a copy)", both))
        columns += _over(evidence, rows, lead, peers, f"{phase_words(phase)} over")
    columns.append(_peak_column(frame, [lead, *peers[:1]]))
    what = f"md_lrpe_cosine, {implementation_words(lead)}, {dtype_words(main_dtype(frame))}"
    table = side_by_side(what, frame, CELL, columns, RATIOS + PEAKS)
    return table and Lines(table.caption, table.frame.tail(HEAD_LINES), table.note)


def _telling(frame: pd.DataFrame) -> pd.DataFrame:
    """The largest shape of each number of axes, and the shapes of fewest and middle positions."""
    largest = frame["positions"] == frame.groupby("axes")["positions"].transform("max")
    positions = sorted(frame["positions"].unique())
    few, middle = positions[0], positions[len(positions) // 2]
    return frame[largest | frame["positions"].isin([few, middle])]


def _gbps(frame: pd.DataFrame) -> pd.Series:
    return frame["bytes"] / frame["median_ms"] / 1e6


def _share_cells(evidence: MachineEvidence, name: str, brackets: bool = True) -> pd.Series:
    """Speed as a share of the copy's in the same rounds: ``93.0 % (92.9-93.1)``."""
    found = speedups(evidence, STEM, *(Series.of(implementation=n) for n in (name, COPY)))
    words = [
        percent(r.ratio) + (f" ({100 * r.low:.1f}-{100 * r.high:.1f})" if brackets else "")
        for r in found.itertuples()
    ]
    return pd.Series(words, found.index, dtype=object)


def _over(
    evidence: MachineEvidence, rows: pd.DataFrame, lead: str, peers: list[str], words: str
) -> list[Beside]:
    """A column for each peer: the speed-ups of the lead over it."""
    columns = []
    for peer in peers:
        series, base = Series.of(implementation=lead), Series.of(implementation=peer)
        cells = speedup_cells(evidence, STEM, series, base)
        header = f"{words} {base.words}"
        columns.append(Beside(header, cells[cells.index.isin(rows.index)]))
    return columns


def _peak_column(frame: pd.DataFrame, names: list[str]) -> Beside:
    """The higher peak of the two directions, of each name, at the rows of the first of them."""
    peaks = frame[gates.shown(frame)].groupby([*CELL, "implementation"])["peak_mib"].max()
    rows = having(frame, implementation=names[0], phase="forward")
    cells = [
        " / ".join(significant(peaks.get((*cell, name), float("nan"))) for name in names)
        for cell in rows[CELL].itertuples(index=False, name=None)
    ]
    header = f"peak, {' / '.join(map(implementation_words, names))} (MiB)"
    nothing = " / ".join([EMPTY] * len(names))
    return Beside(header, pd.Series(cells, rows.index, dtype=object).replace(nothing, EMPTY))


def _by_phase_and_dtype(
    evidence: MachineEvidence, make: Callable[[MachineEvidence, pd.DataFrame, str], Lines | None]
) -> list[Lines]:
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    frame = shaped(frame)
    return each(
        *(
            make(evidence, rows, f"{phase_words(phase).capitalize()}, {dtype_words(dtype)}")
            for phase in in_order("phase", frame["phase"])
            for dtype in in_order("dtype", frame["dtype"])
            if len(rows := having(frame, phase=phase, dtype=dtype))
        )
    )


def _ordered(frame: pd.DataFrame) -> list[str]:
    """The copy, our kernels, then the others in reading order."""
    names = in_order("implementation", frame["implementation"])
    return sorted(names, key=lambda name: (name != COPY, name not in (TRITON, CACHED)))


def speed_tables(evidence: MachineEvidence) -> list[Lines]:
    """L1, a table a phase and dtype: times, rates, share of the copy, speed-ups."""
    return _by_phase_and_dtype(evidence, _speed)


def _speed(evidence: MachineEvidence, frame: pd.DataFrame, words: str) -> Lines | None:
    leads = measured_leads(frame)
    columns = []
    for name in _ordered(frame):
        rows, label = having(frame, implementation=name), implementation_words(name)
        columns.append(Beside(f"{label} (ms)", kernel_times(rows)))
        if name in (COPY, *leads[:1]):
            columns.append(Beside(f"{label} (GB/s)", value_cells(rows, _gbps(rows))))
        if name != COPY:
            columns.append(Beside(f"{label} (% of copy)", _share_cells(evidence, name)))
    if leads:
        label = implementation_words(leads[0])
        columns += _over(evidence, frame, leads[0], leads[1:], f"{label} over")
    return side_by_side(words, frame, CELL, columns, f"{KERNELS} {RATIOS}")


def memory_tables(evidence: MachineEvidence) -> list[Lines]:
    """L2, a table a phase and dtype: the peak, its closed form and the difference."""
    return _by_phase_and_dtype(evidence, _memory)


def predicted(frame: pd.DataFrame) -> pd.Series:
    """The peak of each row by the closed form, in MiB: that of its phase."""
    forward = frame["phase"] == "forward"
    return frame["predicted_forward_mib"].where(forward, frame["predicted_backward_mib"])


def _memory(_: MachineEvidence, frame: pd.DataFrame, words: str) -> Lines | None:
    frame = frame[predicted(frame).notna()]
    if frame["peak_mib"].isna().all():
        return None
    columns = []
    for name in _ordered(frame):
        rows, label = having(frame, implementation=name), implementation_words(name)
        peaks, states = value_cells(rows, rows["peak_mib"]), status_words(rows)
        difference = rows["peak_mib"] / predicted(rows) - 1
        columns += [
            Beside(f"{label} (MiB)", peaks.where(states == "ok", states)),
            Beside(f"{label}, closed form (MiB)", predicted(rows).map(significant)),
            Beside(f"{label}, difference", value_cells(rows, difference, signed_percent)),
        ]
    return side_by_side(f"Peak memory, {words.lower()}", frame, CELL, columns)


def gate_tables(evidence: MachineEvidence) -> list[Lines]:
    """The gates of what is timed, and the kernel tests: the largest errors over all cells."""
    return each(
        _gates(evidence.frame(STEM), "Gates of the timed rows: largest errors"),
        _gates(evidence.frame(CHECK), "Kernel tests: largest errors"),
    )


def _gates(frame: pd.DataFrame | None, caption: str) -> Lines | None:
    """One line an implementation and dtype; the share is the largest in its own row's bound."""
    if frame is None or not gates.gated(frame).any():
        return None
    frame = frame[gates.gated(frame)]
    lines = [
        _gate_line(rows, name, dtype)
        for name in in_order("implementation", frame["implementation"])
        for dtype in in_order("dtype", frame["dtype"])
        if len(rows := having(frame, implementation=name, dtype=dtype))
    ]
    return Lines(caption, pd.DataFrame(lines))


def _gate_line(frame: pd.DataFrame, name: str, dtype: str) -> dict[str, object]:
    return {
        "implementation": implementation_words(name),
        "numerics": dtype_words(dtype),
        **{label: error(frame[f"error_{key}"].max()) for key, label in CHECKED.items()},
        "largest share of its bound": percent((frame["max_error"] / frame["error_bound"]).max()),
        "rows": len(frame),
        "failed": int(gates.red(frame).sum()),
    }


TABLES = (
    Table("L1", "Speed of md_lrpe_cosine, and its share of a copy", speed_tables),
    Table(
        "L2",
        "Memory of md_lrpe_cosine",
        memory_tables,
        Owed(where=lambda frame: frame["implementation"] != COPY),
    ),
    Table("", "Gates and kernel tests", gate_tables),
)
