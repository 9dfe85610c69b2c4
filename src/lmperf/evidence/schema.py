"""The schema of evidence, checked when it is read: which rows can be what a measurement wrote.

A digest that holds says only that a file is as somebody wrote it. Here its rows are held against
what the benchmark declares, and against what the core never writes: a median outside its rounds,
an error over the bound of a row that is ok, two rows of one case. Only what must hold of every
measurement is asked for; what is merely unlikely is not (`lmperf.evidence.plausible`).

Why a median lies between the least and the largest median of its rounds, however long each was:
at least half of each round is no more than the largest of them, so at least half of all is. Why a
mean is no farther from the median than the standard deviation: no other number is nearer to all
values than the median (Hotelling and Solomons, 1932).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from lmperf.benchmark import Benchmark, Timed
from lmperf.evidence.cells import NOT_FINITE, cell_faults, is_error, numbers_in, shown
from lmperf.evidence.store import STATISTICS

Row = Mapping[str, str]
Fault = tuple[int, str]

# What a row has that was timed, and no row that failed.
_TIMED = (*STATISTICS, "rounds_ms", "together")
_ONLY_TIMED = (*_TIMED, "again_ms", "host_ms", "eager_ms", "tflops", "bandwidth_gbps")
# What takes a case whole, so that nothing else can be said of it.
_WHOLE = ("oom", "timeout", "crash", "unsupported")
_RATES = {"tflops": ("flops", 1e9), "bandwidth_gbps": ("bytes", 1e6)}
# Of numbers that were computed from one another in double precision.
_RELATIVE = 1e-6


def faults(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Rows that no measurement wrote: the index of each, and what is wrong with it, in few words.

    Args:
        benchmark: what the rows are of.
        rows: texts by column, as `csv.DictReader` gives them. A column that is not there is empty.
    """
    found = list(cell_faults(benchmark, rows))
    unread = {index for index, _ in found}
    timed = isinstance(benchmark, Timed)
    errors = [column.name for column in benchmark.declared_columns if is_error(column.name)]
    for index, row in enumerate(rows):
        if index not in unread:
            found += [(index, words) for words in _row_faults(row, timed, errors)]
    found += _repeated(benchmark, rows)
    found += _torn_cases(benchmark, rows)
    found += _torn_passes(benchmark, rows)
    yield from sorted(found, key=itemgetter(0))


def sound(benchmark: Benchmark, rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows without fault, and of every fault a line that names the benchmark and the row.

    Of rows that contradict one another none is sound.
    """
    found = list(faults(benchmark, rows))
    faulty = {index for index, _ in found}
    lines = [
        f"{benchmark.stem}: row {index + 1} ({_name(benchmark, rows[index])}): {words}"
        for index, words in found
    ]
    return [row for index, row in enumerate(rows) if index not in faulty], lines


def _name(benchmark: Benchmark, row: Row) -> str:
    # Not what a row is named elsewhere: what stands in this one may be anything.
    values = [row.get(name) for name in benchmark.identity]
    return ", ".join(shown(value)[1:-1] for value in values if value)


def _row_faults(row: Row, timed: bool, errors: Sequence[str]) -> Iterator[str]:
    """What of a row, each of whose cells is right, contradicts the rest of it."""
    status = row["status"]
    if status != "ok":
        yield from (f"status is {status}, with a {name}" for name in _ONLY_TIMED if row.get(name))
    elif timed:
        yield from (f"status is ok, without a {name}" for name in _TIMED if not row.get(name))
    yield from _gate_faults(row, status, timed)
    if status not in ("nan", "failed_check"):
        infinite = (name for name in errors if row.get(name) in NOT_FINITE)
        yield from (f"{name} is {row[name]}, with the status {status}" for name in infinite)
    if status == "ok" and all(map(row.get, _TIMED)):
        yield from _time_faults(row)
    if status == "ok" and row.get("median_ms"):
        yield from _rate_faults(row)


def _gate_faults(row: Row, status: str, timed: bool) -> Iterator[str]:
    error, bound = row.get("max_error") or "", row.get("error_bound") or ""
    if bool(error) != bool(bound):
        yield f"max_error is {error or 'empty'}, error_bound is {bound or 'empty'}"
        return
    over = bool(error) and not float(error) <= float(bound)
    if status == "ok" and over:
        yield f"status is ok, with a max_error of {error} over the error_bound of {bound}"
    if status == "nan" and error and error not in NOT_FINITE:
        yield f"status is nan, with a max_error of {error}"
    explained = row.get("reason") or (over and not timed and status == "failed_check")
    if status in ("nan", "failed_check") and not explained:
        yield f"status is {status}, without a reason"


def _time_faults(row: Row) -> Iterator[str]:
    """What the statistics of times say against each other."""
    median, mean, deviation, p20, p80 = (float(row[name]) for name in STATISTICS[:-1])
    rounds, again = numbers_in(row["rounds_ms"]), numbers_in(row.get("again_ms") or "")
    near = _RELATIVE * median
    if not p20 - near <= median <= p80 + near:
        yield f"median_ms is {median}, outside p20_ms {p20} and p80_ms {p80}"
    if not min(rounds) - near <= median <= max(rounds) + near:
        yield f"median_ms is {median}, outside its rounds, {min(rounds)} to {max(rounds)}"
    if abs(mean - median) > deviation + near:
        yield f"mean_ms is {mean}, farther from median_ms {median} than std_ms {deviation}"
    if int(row["repetitions"]) < len(rounds):
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


def _repeated(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Rows that have their name in common with others."""
    for indices in _alike(rows, benchmark.identity):
        if len(indices) > 1:
            statuses = " and ".join(dict.fromkeys(str(rows[n].get("status")) for n in indices))
            words = f"is there {len(indices)} times, as {shown(statuses)}"
            yield from ((index, words) for index in indices)


def _torn_cases(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Rows of one case and phase that were not written at once."""
    if not benchmark.index:  # each is a case of its own
        return
    for indices in _alike(rows, (*(a.name for a in benchmark.axes), "implementation", "phase")):
        if len(indices) < 2:
            continue
        for name in ("key", "environment", "together"):
            if len({rows[n].get(name) for n in indices}) > 1:
                yield from ((n, f"{name} is not that of the case's other rows") for n in indices)
        whole = [s for n in indices if (s := rows[n].get("status")) in _WHOLE]
        if whole:
            yield from ((n, f"stands beside other rows of a case of {whole[0]}") for n in indices)


def _torn_passes(benchmark: Benchmark, rows: Sequence[Row]) -> Iterator[Fault]:
    """Rows that say they were timed in turn, and were not: other cells, phases or rounds."""
    shared = ("phase", *(a.name for a in benchmark.axes if a.name not in benchmark.together))
    passes: dict[str, dict[tuple, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, row in enumerate(rows):
        if together := row.get("together"):
            rounds = (row.get("rounds_ms") or "").count(";")
            passes[together][rounds, *map(row.get, shared)].append(index)
    for together, kinds in passes.items():
        if len(kinds) > 1:
            words = f"together is {shown(together)}, of several cells, phases or numbers of rounds"
            yield from ((index, words) for indices in kinds.values() for index in indices)


def _alike(rows: Sequence[Row], names: Sequence[str]) -> list[list[int]]:
    """The indices of rows that have the same texts in some columns."""
    found: dict[tuple, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        found[tuple(map(row.get, names))].append(index)
    return list(found.values())
