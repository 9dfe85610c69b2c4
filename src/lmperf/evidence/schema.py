"""Check evidence when it is read: no row may contradict itself, other rows or its benchmark.

A matching digest proves only that a file is unchanged since its digest was written. This module
checks the rows against the benchmark's declaration, and for what the measuring code never writes: a
median outside its rounds, an error above the bound of an `ok` row, the same row twice. Every
measurement passes these checks, however unlikely its values (see `lmperf.evidence.plausible`).

A round is one turn of an implementation in the interleaved timing. Why a median lies between the
smallest and the largest median of its rounds, however long each round was: at least half of the
samples of each round are at most the largest of these medians, hence at least half of all samples.
Why a mean is within one standard deviation of the median: the median minimizes the mean absolute
deviation (Hotelling and Solomons, 1932). Why the standard deviation of n times is at most sqrt(n)
times their mean: no time is negative, so one time of n means beside n - 1 zeros is the extreme. Why
no time exceeds `Benchmark.limit_s`: the supervisor ends a worker whose step takes longer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from lmperf import gate
from lmperf.benchmark import Benchmark, Timed
from lmperf.evidence.cells import NOT_FINITE, cell_faults, is_error, numbers_in, quoted
from lmperf.evidence.consistent import is_host_bound
from lmperf.evidence.store import STATISTICS
from lmperf.measuring.state import DRIFT, LOADED, SLOW_HOST

Row = Mapping[str, str]
Fault = tuple[int, str]

# Columns that every timed row fills and a failed row leaves empty.
_TIMED = (*STATISTICS, "rounds_ms", "together")
_STRETCH = ("sustained_ms", "sustained_rounds_ms", "sustained_steps", "sustained_s")
_ONLY_TIMED = (
    *(*_TIMED, "again_ms", "least_ms", "host_ms", "eager_ms", "tflops", "bandwidth_gbps"),
    *(*_STRETCH, "sustained_mhz", "sustained_w"),
)
# Times of single calls or steps, in ms: none can exceed the time-out of a step.
_CALLS = ("mean_ms", "p80_ms", "least_ms", "host_ms", "eager_ms", "sustained_ms")
# Statuses that end a whole case and phase: it then has one row instead of one per index value.
_WHOLE_CASE = ("oom", "timeout", "crash", "unsupported")
_RATES = {"tflops": ("flops", 1e9), "bandwidth_gbps": ("bytes", 1e6)}
# Relative tolerance when a number is computed again in double precision from other columns.
_RELATIVE = 1e-6
# Column -> its mark, and kind of device -> the largest value that a row without the mark may have.
_NEEDS_MARK = {
    "other_load": ("loaded", LOADED),
    "reference": ("drift", {kind: 1 + limit for kind, limit in DRIFT.items()}),
    "host_reference": ("host", {kind: 1 + limit for kind, limit in SLOW_HOST.items()}),
}


def faults(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Yield (index of the row, description) for each fault that no measurement can have written.

    Args:
        benchmark: the benchmark of the rows.
        rows: column -> text, as from `csv.DictReader`. An absent column is read as empty.
    """
    found = list(cell_faults(benchmark, rows))
    unreadable = {index for index, _ in found}
    timed = isinstance(benchmark, Timed)
    errors = [column.name for column in benchmark.declared_columns if is_error(column.name)]
    for index, row in enumerate(rows):
        if index not in unreadable:
            found += [(index, words) for words in _row_faults(benchmark, row, timed, errors)]
    found += _repeated(benchmark, rows)
    found += _mixed_cases(benchmark, rows)
    found += _mixed_groups(benchmark, rows)
    yield from sorted(found, key=itemgetter(0))


def sound(benchmark: Benchmark, rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows without a fault, and one line per fault that names benchmark and row.

    If rows contradict one another, all of them are faulty.
    """
    found = list(faults(benchmark, rows))
    faulty = {index for index, _ in found}
    lines = [
        f"{benchmark.stem}: row {index + 1} ({_name(benchmark, rows[index])}): {words}"
        for index, words in found
    ]
    return [row for index, row in enumerate(rows) if index not in faulty], lines


def _name(benchmark: Benchmark, row: Row) -> str:
    # The cells of a faulty row may hold any text, so they are quoted; `row_name` would not do so.
    values = [row.get(name) for name in benchmark.identity]
    return ", ".join(quoted(value)[1:-1] for value in values if value)


def _row_faults(
    benchmark: Benchmark, row: Row, timed: bool, errors: Sequence[str]
) -> Iterator[str]:
    """Yield the contradictions between the columns of a row whose cells are all valid."""
    status = row["status"]
    if status != "ok":
        yield from (
            f"status is {status}, but there is a {name}" for name in _ONLY_TIMED if row.get(name)
        )
    elif timed:
        yield from (f"status is ok, but {name} is empty" for name in _TIMED if not row.get(name))
    yield from _gate_faults(row, status, timed)
    if status not in ("nan", "failed_check"):
        infinite = (name for name in errors if row.get(name) in NOT_FINITE)
        yield from (f"{name} is {row[name]}, but status is {status}" for name in infinite)
    yield from _bound_faults(benchmark, row, [name for name in errors if row.get(name)])
    if timed and status == "ok" and all(map(row.get, _TIMED)):
        yield from _time_faults(row)
        yield from _sustained_faults(row)
        yield from _mark_faults(row, benchmark.clock)
    if status == "ok" and row.get("median_ms"):
        yield from _rate_faults(row)
    yield from _limit_faults(benchmark, row)


def _gate_faults(row: Row, status: str, timed: bool) -> Iterator[str]:
    error, bound = row.get("max_error") or "", row.get("error_bound") or ""
    if bool(error) != bool(bound):
        yield f"max_error is {error or 'empty'}, error_bound is {bound or 'empty'}"
        return
    over = bool(error) and gate.verdict(float(error), float(bound)) != "ok"
    if status == "ok" and over:
        yield f"status is ok, but max_error {error} is over error_bound {bound}"
    if status == "nan" and error and error not in NOT_FINITE:
        yield f"status is nan, but max_error is {error}"
    explained = row.get("reason") or (over and not timed and status == "failed_check")
    if status in ("nan", "failed_check") and not explained:
        yield f"status is {status}, but reason is empty"


def _bound_faults(benchmark: Benchmark, row: Row, errors: Sequence[str]) -> Iterator[str]:
    """Yield where `max_error` is none of a row's errors, or its bound wider than any is here."""
    worst, of_tensors = row.get("max_error"), [n for n in errors if n.startswith("error_")]
    if row["status"] == "ok" and worst and of_tensors and worst not in map(row.get, of_tensors):
        yield f"max_error is {worst}, but none of {', '.join(of_tensors)} is"
    if bound := row.get("error_bound"):
        largest = benchmark.largest_error_bound(row)
        if float(bound) > largest * (1 + _RELATIVE):
            yield f"error_bound is {bound}, but rounding here explains at most {largest:.3g}"


def _limit_faults(benchmark: Benchmark, row: Row) -> Iterator[str]:
    """Yield the times that exceed the time-out, after which a worker would have been ended."""
    limit_s = benchmark.limit_s
    for name in _CALLS:
        if (text := row.get(name)) and float(text) > limit_s * 1e3:
            yield f"{name} is {text}, over the time-out of {limit_s:g} s"
    compiling_s = limit_s * len(type(benchmark).phases)  # the first call of each phase
    if (text := row.get("compile_s")) and float(text) > compiling_s:
        yield f"compile_s is {text}, over the time-out of {limit_s:g} s a phase"


def _mark_faults(row: Row, clock: str) -> Iterator[str]:
    """Yield what was recorded of the machine that the row's marks do not say.

    A slow host makes times longer on a CPU, which has no `launch_us`, and of host-bound steps. A
    row without `launch_us` does not name its kind of device, so the largest limit counts.
    """
    marks = (row.get("marks") or "").split(";")
    ignored = row.get("launch_us") and not (clock == "step" and is_host_bound(row))
    for name, (mark, limits) in _NEEDS_MARK.items():
        text = row.get(name)
        if mark == "host" and ignored:
            continue
        most = limits["cuda"] if row.get("launch_us") else max(limits.values())
        if text and mark not in marks and float(text) > most:
            yield f"{name} is {text}, but the row is not marked {mark}"


def _sustained_faults(row: Row) -> Iterator[str]:
    """Yield the contradictions between the columns of steps that were timed back to back."""
    given = [name for name in _STRETCH if row.get(name)]
    if not given:
        yield from (
            f"{name} is {row[name]}, but sustained_ms is empty"
            for name in ("sustained_mhz", "sustained_w")
            if row.get(name)
        )
        return
    if lacking := [name for name in _STRETCH if name not in given]:
        yield f"{given[0]} is {quoted(row[given[0]])}, but {lacking[0]} is empty"
        return
    median, steps, seconds = (float(row[name]) for name in ("sustained_ms", *_STRETCH[2:]))
    blocks = numbers_in(row["sustained_rounds_ms"])
    near = 1 + _RELATIVE
    if not min(blocks) / near <= median <= max(blocks) * near:
        yield f"sustained_ms is {median}, outside its blocks, {min(blocks)} to {max(blocks)}"
    least_s, most_s = (steps * block / 1e3 for block in (min(blocks), max(blocks)))
    if not least_s / near <= seconds <= most_s * near:
        yield f"sustained_s is {seconds}, but {steps:g} steps take {least_s:.3g} to {most_s:.3g} s"
    if steps < len(blocks):
        yield f"sustained_steps is {steps:g}, for {len(blocks)} blocks"


def _time_faults(row: Row) -> Iterator[str]:
    """Yield the contradictions between median, mean, deviation, percentiles and rounds."""
    median, mean, deviation, p20, p80 = (float(row[name]) for name in STATISTICS[:-1])
    rounds, again = numbers_in(row["rounds_ms"]), numbers_in(row.get("again_ms") or "")
    near = _RELATIVE * median
    if not p20 - near <= median <= p80 + near:
        yield f"median_ms is {median}, outside p20_ms {p20} and p80_ms {p80}"
    if not min(rounds) - near <= median <= max(rounds) + near:
        yield f"median_ms is {median}, outside its rounds, {min(rounds)} to {max(rounds)}"
    if abs(mean - median) > deviation + near:
        yield f"mean_ms is {mean}, farther from median_ms {median} than std_ms {deviation}"
    repetitions = int(row["repetitions"])
    if deviation > math.sqrt(repetitions) * mean + near:
        yield f"std_ms is {deviation}, which {repetitions} times with mean_ms {mean} cannot have"
    if least := row.get("least_ms"):
        bound = min(p20, *rounds)
        if float(least) > bound + near:
            yield f"least_ms is {least}, over {bound} of its rounds or p20_ms"
    if repetitions < len(rounds):
        yield f"repetitions is {row['repetitions']}, for {len(rounds)} rounds"
    if len(again) > len(rounds):
        yield f"again_ms has {len(again)} rounds, rounds_ms {len(rounds)}"


def _rate_faults(row: Row) -> Iterator[str]:
    for name, (work, unit) in _RATES.items():
        amount = float(row.get(work) or 0)
        expected = amount / float(row["median_ms"]) / unit
        rate = float(row.get(name) or 0)
        if abs(rate - expected) > _RELATIVE * expected:
            yield f"{name} is {rate:g}, but {work} over median_ms is {expected:g}"
    full = row.get("full_flops")
    if full and float(full) < float(row.get("flops") or 0):
        yield f"full_flops is {full}, less than flops {row['flops']}"


def _repeated(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Yield a fault for each row whose identifying columns equal those of another row."""
    for indices in _alike(rows, benchmark.identity):
        if len(indices) > 1:
            statuses = " and ".join(dict.fromkeys(str(rows[n].get("status")) for n in indices))
            words = f"occurs {len(indices)} times, with the status {quoted(statuses)}"
            yield from ((index, words) for index in indices)


def _mixed_cases(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Yield a fault for each row of a case and phase that mixes several measurements."""
    if not benchmark.index:  # one row per case and phase
        return
    for indices in _alike(rows, (*(a.name for a in benchmark.axes), "implementation", "phase")):
        if len(indices) < 2:
            continue
        for name in ("key", "environment", "together"):
            if len({rows[n].get(name) for n in indices}) > 1:
                words = f"{name} differs from that of the case's other rows"
                yield from ((n, words) for n in indices)
        whole = [s for n in indices if (s := rows[n].get("status")) in _WHOLE_CASE]
        if whole:
            words = f"its case has the status {whole[0]} and more than one row"
            yield from ((n, words) for n in indices)


def _mixed_groups(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Yield a fault for each row that shares `together` with another cell or number of rounds.

    Rows with the same identifier in `together` were timed in turn, so that their phase, their
    number of rounds and the axes that the group shares must agree.
    """
    shared = ("phase", *(a.name for a in benchmark.axes if a.name not in benchmark.together))
    passes: dict[str, dict[tuple, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, row in enumerate(rows):
        if together := row.get("together"):
            rounds = (row.get("rounds_ms") or "").count(";")
            passes[together][rounds, *map(row.get, shared)].append(index)
    for together, kinds in passes.items():
        if len(kinds) > 1:
            words = f"together is {quoted(together)} in several cells, phases or numbers of rounds"
            yield from ((index, words) for indices in kinds.values() for index in indices)


def _alike(rows: Sequence[Row], names: Sequence[str]) -> list[list[int]]:
    """Return the indices of the rows, grouped by equal texts in these columns."""
    found: dict[tuple, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        found[tuple(map(row.get, names))].append(index)
    return list(found.values())
