"""Find rows that no measurement can have produced: faster than possible, or contradictory.

The floor of a row (the least time that it can take) is the longest of three times: its FLOPs at the
best matmul rate in its numerics, its bytes at the best copy rate, and an empty kernel launch. The
rates are the ceilings (rows of the benchmark `ceilings`) measured in the same environment, and the
peaks of the data sheet. If neither is known, the row has no floor.

A time may be below its floor by these margins:

- 3 % on a GPU. The same matmul varies by 1 % between runs at the same clock, and some kernels use
  the device slightly better than PyTorch's matmul and copy do.
- 15 % on a CPU. Its clock varies from row to row with the number of busy cores and with
  temperature. Its caches are not flushed, so bytes give no floor.
- 5 % over the data sheet, at the device's highest clock.
- Two steps of the event timer (0.5 us each) below an empty launch, because both times are rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lmperf.devices import CACHE_BYTES, DataSheet, sheet_of
from lmperf.dtypes import dtype_of

KIND = "faster than possible"
GPU_MARGIN = 0.03
CPU_MARGIN = 0.15
SHEET_MARGIN = 0.05
EVENT_STEP_MS = 0.0005
# A float32-accurate product takes three TF32 or 16-bit products (hi hi + hi lo + lo hi).
PRODUCTS = 3
COPIES = frozenset(("copy", "widen", "narrow"))
# Operation of a row of `ceilings` -> the column with its amount of work; None: one launch.
_WORK = {"matmul": "flops", "launch": None, **dict.fromkeys(COPIES, "bytes")}
# The columns on which the floor of a row depends.
NEEDED = frozenset(("environment", "dtype", "flops", "bytes", "ranks"))
Row = Mapping[str, object]


@dataclass(frozen=True)
class Limits:
    """The highest rates that are possible in one environment, margins included.

    Attributes:
        tflops: matmul numerics -> TFLOP/s.
        bandwidth_gbps: GB/s of reads plus writes; None if bytes give no floor.
        launch_ms: time of an empty launch in ms, the least time of any row.
    """

    tflops: Mapping[str, float] = field(default_factory=dict)
    bandwidth_gbps: float | None = None
    launch_ms: float = 0.0

    def floor_ms(self, row: Row) -> float:
        """The least time in ms that a row can take in this environment; 0 if it has no floor."""
        flops, moved = number(row.get("flops")), number(row.get("bytes"))
        rate = self.rate(str(row["dtype"])) if row.get("dtype") else None
        floors = [self.launch_ms]
        if flops and rate:
            ranks = number(row.get("ranks")) or 1  # the FLOPs are those of all ranks
            floors.append(flops / ranks / rate / 1e9)
        if moved and self.bandwidth_gbps:
            floors.append((moved - CACHE_BYTES) / self.bandwidth_gbps / 1e6)
        return max(floors)

    def rate(self, dtype: str) -> float | None:
        """The highest TFLOP/s for a dtype: of its numerics and all more accurate ones.

        None if the rate of its numerics is unknown.
        """
        numerics = dtype_of(dtype).matmul
        if numerics not in self.tflops:
            return None
        names = (numerics, *dtype_of(numerics).more_exact)
        return max(self._matmul_rate(name) for name in names if name in self.tflops)

    def _matmul_rate(self, numerics: str) -> float:
        """The highest TFLOP/s of a matmul; in float32 it may consist of three faster matmuls."""
        split = max(self.tflops.values()) / PRODUCTS if numerics == "float32" else 0.0
        return max(self.tflops[numerics], split)


def limits_of(
    ceilings: Iterable[Row], environments: Mapping[str, Mapping[str, object]]
) -> dict[str, Limits]:
    """Return environment -> limits, from the rows of `ceilings` and the facts of each environment.

    Rows with a sustained load are ignored: the power cap limits their rates.
    """
    rows: dict[str, list[Row]] = {name: [] for name in environments}
    for row in ceilings:
        if row.get("load") == "burst" and row.get("status") == "ok" and number(row["median_ms"]):
            rows.setdefault(str(row["environment"]), []).append(row)
    return {name: _limits(found, environments.get(name, {})) for name, found in rows.items()}


def impossible(limits: Mapping[str, Limits], row: Row) -> bool:
    """Whether a row has the status ok and a time below its floor (see `floor_ms`)."""
    time = number(row.get("median_ms"))
    return row.get("status") == "ok" and time is not None and time < floor_ms(limits, row)


def floor_ms(limits: Mapping[str, Limits], row: Row) -> float:
    """The least time in ms that a row can take in its environment; 0 if no limits are known."""
    found = limits.get(str(row.get("environment")))
    return found.floor_ms(row) if found else 0.0


def contradicts_bound(error: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return a mask of the ok rows whose error is above its bound, or missing beside a bound.

    error, bound: one value per row; NaN where a cell is empty. `lmperf.gate` never writes such a
    row, so somebody edited it.
    """
    return ~np.isnan(bound) & ~(error <= bound)


def number(value: object) -> float | None:
    """Return the number in a CSV cell; None if the cell is empty or NaN."""
    if value is None or value == "" or value != value:
        return None
    return float(str(value))


def _limits(rows: Iterable[Row], facts: Mapping[str, object]) -> Limits:
    is_gpu = facts.get("kind") == "cuda"
    rates, copies, launches = _measured(rows, 1 + (GPU_MARGIN if is_gpu else CPU_MARGIN))
    if not is_gpu:
        return Limits(rates)
    sheet = sheet_of(str(facts.get("device")))
    bandwidths = list(copies.values()) if set(copies) >= COPIES else []
    bandwidth = max(bandwidths, default=None)
    if sheet:
        rates = _least(rates, _promised(sheet, number(facts.get("clock_sm_mhz"))))
        promised = sheet.bandwidth_gbps * (1 + SHEET_MARGIN)
        bandwidth = min(bandwidth or promised, promised)
    launch_ms = min(launches, default=0.0) - 2 * EVENT_STEP_MS
    return Limits(rates, bandwidth, max(launch_ms, 0.0))


def _measured(
    rows: Iterable[Row], margin: float
) -> tuple[dict[str, float], dict[str, float], list[float]]:
    """Return TFLOP/s by numerics, GB/s by kind of copy, and times of empty launches in ms.

    The rates include the margin. If the fastest row of an operation carries a mark (a warning such
    as `loaded`: other programs ran), the operation is dropped, since a quiet machine is faster.
    """
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        operation = str(row["operation"])
        key = (operation, str(row["dtype"]) if operation == "matmul" else "")
        if key not in best or _per_ms(row) > _per_ms(best[key]):
            best[key] = row
    clean = {key: row for key, row in best.items() if not _text(row.get("marks"))}
    rates = {name: _per_ms(row) / 1e9 for (what, name), row in clean.items() if what == "matmul"}
    copies = {what: _per_ms(row) / 1e6 for (what, _), row in clean.items() if what in COPIES}
    launches = [number(row["median_ms"]) for (what, _), row in clean.items() if what == "launch"]
    return (
        {name: rate * margin for name, rate in rates.items()},
        {name: rate * margin for name, rate in copies.items()},
        launches,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _per_ms(row: Row) -> float:
    """A row's work per millisecond: FLOPs of a matmul, bytes of a copy, or launches."""
    work = _WORK[str(row["operation"])]
    return (number(row[work]) or 0.0 if work else 1.0) / number(row["median_ms"])


def _promised(sheet: DataSheet, clock_mhz: float | None) -> dict[str, float]:
    faster = max(1.0, (clock_mhz or 0.0) / sheet.clock_mhz) * (1 + SHEET_MARGIN)
    return {name: rate * faster for name, rate in sheet.tflops.items()}


def _least(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: min(v[name] for v in (one, other) if name in v) for name in {**one, **other}}
