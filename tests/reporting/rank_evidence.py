"""Synthetic evidence of steps on several GPUs, and functions that change its rows."""

import functools

import synthetic
from synthetic import builder, distributed

from lmperf.reporting.evidence import MachineEvidence

SIZES, DTYPES = ("large", "3.4B"), ("float32", "autocast_bfloat16")


@functools.cache
def frames():
    made = {
        "distributed": distributed.steps(builder.Builder(3), builder.GPU, SIZES, DTYPES),
        "distributed_overlap": distributed.overlap(builder.GPU, SIZES, DTYPES),
        "distributed_memory": distributed.memory(builder.GPU, SIZES, DTYPES),
    }
    return {stem: synthetic.provenance(frame, "e1") for stem, frame in made.items()}


def evidence(**changed):
    """Evidence of two GPUs; `changed`: stem -> function of its rows, or None for no rows."""
    found = {}
    for stem, frame in frames().items():
        change = changed.get(stem, lambda rows: rows)
        if change is not None:
            found[stem] = change(frame.copy())
    known = synthetic.facts("nvidia-h200-x2", "cuda", "NVIDIA H200")
    return MachineEvidence("nvidia-h200-x2", known, found)


def slower(name, factor):
    """A function that makes the steps of a strategy slower by a factor."""

    def change(frame):
        chosen = frame["implementation"].str.removesuffix("_compiled") == name
        for column in ("median_ms", "mean_ms", "sustained_ms"):
            frame.loc[chosen, column] *= factor
        for column in ("rounds_ms", "sustained_rounds_ms"):
            frame.loc[chosen, column] = frame.loc[chosen, column].map(
                lambda times: ";".join(str(factor * float(ms)) for ms in times.split(";"))
            )
        return frame

    return change


def as_long_as(name, base):
    """A function that gives the steps of a strategy, also compiled, the times of another one."""

    def change(frame):
        columns = ["median_ms", "mean_ms", "rounds_ms", "sustained_ms", "sustained_rounds_ms"]
        for suffix in ("", "_compiled"):
            ours, theirs = (frame["implementation"] == one + suffix for one in (name, base))
            if ours.any() and theirs.any():
                frame.loc[ours, columns] = frame.loc[theirs, columns].to_numpy()
        return frame

    return change


def mixed(name, base):
    """A function that makes the bf16 steps of a strategy twice as slow, float32 twice as fast."""

    def change(frame):
        low = frame["dtype"] == "autocast_bfloat16"
        made = as_long_as(name, base)(frame)
        twice, half = slower(name, 2.0)(made.copy()), slower(name, 0.5)(made.copy())
        return twice.where(low, half)

    return change


def assigned(table, **values):
    def change(frame):
        chosen = frame["table"] == table
        for name, value in values.items():
            frame.loc[chosen, name] = value
        return frame

    return change


def larger(factor, name=None):
    """A function that multiplies the memory of a strategy, or of all."""

    def change(frame):
        chosen = (frame["implementation"] == name) | (name is None)
        columns = [column for column in frame if column.endswith("_mib")]
        frame.loc[chosen, columns] *= factor
        return frame

    return change


def of(stem, change):
    return lambda: evidence(**{stem: change})


def verdicts(name, base):
    change = {
        "faster": lambda f: slower(name, 0.5)(as_long_as(name, base)(f)),
        "same": as_long_as(name, base),
        "slower": lambda f: slower(name, 2.0)(as_long_as(name, base)(f)),
        "mixed": mixed(name, base),
    }
    return {answer: of("distributed", made) for answer, made in change.items()}


def shares(name, values):
    """Answer -> evidence whose ledger has a share, and an interval of one that varies."""

    def of_share(value):
        return of("distributed_overlap", assigned("ledger", **_interval(name, value, value)))

    varies = of("distributed_overlap", assigned("ledger", **_interval(name, 0.1, 0.6)))
    return {answer: of_share(value) for answer, value in values.items()} | {"varies": varies}


def _interval(name, low, high):
    return {name: high, f"{name}_low": low, f"{name}_high": high}
