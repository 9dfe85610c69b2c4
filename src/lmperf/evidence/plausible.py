"""Times that are impossible on a machine.

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
from dataclasses import dataclass

from lmperf.dtypes import dtype_of
from lmperf.machine.data_sheets import CACHE_BYTES, DataSheet, sheet_of

KIND = "faster than possible"
GPU_MARGIN, CPU_MARGIN, SHEET_MARGIN = 0.03, 0.15, 0.05
EVENT_STEP_MS = 0.0005
# A float32-accurate product takes three TF32 or 16-bit products (hi hi + hi lo + lo hi).
PRODUCTS = 3
COPIES = frozenset(("copy", "widen", "narrow"))
# Operation of a row of `ceilings` -> the column with its amount of work; None: one launch.
_WORK = {"matmul": "flops", "launch": None, **dict.fromkeys(COPIES, "bytes")}
Row = Mapping[str, object]


@dataclass(frozen=True)
class Limits:
    """The highest rates that are possible in one environment, margins included.

    Attributes:
        tflops: matmul numerics -> TFLOP/s.
        bandwidth_gbps: GB/s of reads plus writes; None if bytes give no floor.
        launch_ms: time of an empty launch in ms, the least time of any row.
    """

    tflops: Mapping[str, float]
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

        None if the rate of its numerics is unknown. A product in float32 may be three faster ones.
        """
        numerics = dtype_of(dtype).matmul
        if numerics not in self.tflops:
            return None
        names = {numerics, *dtype_of(numerics).more_exact} & self.tflops.keys()
        split = max(self.tflops.values()) / PRODUCTS if "float32" in names else 0.0
        return max(split, *(self.tflops[name] for name in names))


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
    return {name: _limits(bursts, environments.get(name, {})) for name, bursts in rows.items()}


def impossible(limits: Mapping[str, Limits], row: Row) -> bool:
    """Whether a row has the status ok and a time below its floor (see `floor_ms`)."""
    time = number(row.get("median_ms"))
    return row.get("status") == "ok" and time is not None and time < floor_ms(limits, row)


def floor_ms(limits: Mapping[str, Limits], row: Row) -> float:
    """The least time in ms that a row can take in its environment; 0 if no limits are known."""
    of_environment = limits.get(str(row.get("environment")))
    return of_environment.floor_ms(row) if of_environment else 0.0


def number(value: object) -> float | None:
    """Return the number in a CSV cell; None if the cell is empty or NaN."""
    if value is None or value == "" or value != value:
        return None
    return float(str(value))


def _limits(rows: Iterable[Row], facts: Mapping[str, object]) -> Limits:
    is_gpu = facts.get("kind") == "cuda"
    margin = 1 + (GPU_MARGIN if is_gpu else CPU_MARGIN)
    best = _fastest(rows)
    rates = {dtype: rate * margin / 1e9 for (what, dtype), rate in best.items() if dtype}
    if not is_gpu:
        return Limits(rates)
    copies = {what: rate * margin / 1e6 for (what, _), rate in best.items() if what in COPIES}
    bandwidth = max(copies.values()) if copies.keys() >= COPIES else None
    if sheet := sheet_of(str(facts.get("device"))):
        promised = _promised(sheet, number(facts.get("clock_sm_mhz")))
        rates = {
            name: min(limits[name] for limits in (rates, promised) if name in limits)
            for name in {**rates, **promised}
        }
        most = sheet.bandwidth_gbps * (1 + SHEET_MARGIN)
        bandwidth = min(bandwidth or most, most)
    launch_ms = 1 / best["launch", ""] - 2 * EVENT_STEP_MS if ("launch", "") in best else 0.0
    return Limits(rates, bandwidth, max(launch_ms, 0.0))


def _fastest(rows: Iterable[Row]) -> dict[tuple[str, str], float]:
    """Return (operation, dtype of a matmul or "") -> its most FLOPs, bytes or launches per ms.

    If the fastest row is marked, as loaded or capped, its operation is left out: a quiet machine is
    faster.
    """
    best: dict[tuple[str, str], tuple[float, Row]] = {}
    for row in rows:
        work = _WORK[str(row["operation"])]
        per_ms = (number(row[work]) or 0.0 if work else 1.0) / number(row["median_ms"])
        key = str(row["operation"]), str(row["dtype"]) if work == "flops" else ""
        if key not in best or per_ms > best[key][0]:
            best[key] = per_ms, row
    return {key: per_ms for key, (per_ms, row) in best.items() if not row.get("marks")}


def _promised(sheet: DataSheet, clock_mhz: float | None) -> dict[str, float]:
    faster = max(1.0, (clock_mhz or 0.0) / sheet.clock_mhz) * (1 + SHEET_MARGIN)
    return {name: rate * faster for name, rate in sheet.tflops.items()}
