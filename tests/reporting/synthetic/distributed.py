"""Make rows of training on several ranks: steps, the overlap ledger, and memory of each rank."""

from __future__ import annotations

import pandas as pd

from lmperf.distributed.memory import MOMENTS, predicted_bytes, sent_bytes
from lmperf.transformer.sizes import SIZES
from synthetic.builder import Builder

SHAPES = {size.short: size for size in SIZES.values()}
MIB = 2**20
# Strategy -> share of its communication that is hidden, and of the computation's time it adds.
STRATEGIES = {
    "one_by_one": (0.0, 0.0),
    "flat": (0.0, 0.02),
    "overlapped": (0.93, 0.0),
    "bucket_1": (0.8, 0.05),
    "bucket_10": (0.92, 0.02),
    "bucket_100": (0.9, 0.0),
    "bucket_1000": (0.4, 0.0),
    "ddp": (0.9, 0.0),
    "sharded_optimizer": (0.85, 0.0),
    "zero_redundancy": (0.6, 0.1),
    "fully_sharded": (0.88, 0.02),
    "fsdp2": (0.7, 0.05),
    "fully_sharded_checkpointed": (0.9, 0.3),
    "fsdp2_checkpointed": (0.75, 0.3),
}
COMPILED = ("flat", "overlapped", "ddp", "fully_sharded", "fsdp2")
GATHER = 0.6  # part of the communication that is all-gathers, of a fully sharded model
STEPS = 9


def names(compiled: bool) -> list[str]:
    """All strategies, with the compiled variants if ``compiled``."""
    return [*STRATEGIES, *(f"{name}_compiled" for name in COMPILED if compiled)]


def times(name: str, size: str, ranks: int, machine: dict) -> dict[str, float]:
    """ms of a step's computation, communication and its hidden part."""
    one = SHAPES[size].parameters() / (2e7 if machine["device"] else 1e5)
    one *= 0.75 if name.endswith("_compiled") else 1.0
    hidden, more = STRATEGIES[name.removesuffix("_compiled")]
    sent = sent_bytes(name, SHAPES[size], ranks, "float32")["total"]
    transfer = sent / (300e9 if machine["device"] else 2e9) * 1e3
    return {
        "compute": one / ranks * (1 + more),
        "communication": transfer,
        "hidden": hidden * transfer,
        "one": one,
    }


def cell(size: str, dtype: str, ranks: int, context: int) -> dict:
    return {"size": size, "context_length": context, "batch": 4, "ranks": ranks, "dtype": dtype}


def steps(build: Builder, machine: dict, sizes, dtypes, ranks=2, context=512, compiled=True):
    """Steps of all strategies and of one rank, each row in turn with the others of its cell."""
    rows = []
    for size in sizes:
        for dtype in dtypes:
            together = build.next_pass()
            one = ["one_rank", *(["one_rank_compiled"] if compiled else [])]
            for name in [*one, *names(compiled)]:
                alone = name.startswith("one_rank")
                like = name.replace("one_rank", "overlapped")
                found = times(like, size, ranks, machine)
                ms = found["compute"] + found["communication"] - found["hidden"]
                ms = found["one"] if alone else ms
                number = 1 if alone else ranks
                rows.append(
                    {
                        **cell(size, dtype, number, context),
                        **{"implementation": name, "phase": "train_step"},
                        **build.timed(ms, together, again=name == "ddp"),
                        **build.sustained(ms, machine["device"] is not None),
                        "peak_mib": _peak(name, size, number, dtype, context, machine) / MIB,
                        **({} if alone else _counted(name, size, ranks, dtype)),
                        **{"max_error": 1e-6, "error_bound": 1e-4},
                    }
                )
    return pd.DataFrame(rows)


def _counted(name: str, size: str, ranks: int, dtype: str) -> dict:
    return {
        "calls": 40,
        "sent_bytes": 1.001 * sent_bytes(name, SHAPES[size], ranks, dtype)["total"],
    }


def _kind(machine: dict) -> str:
    return "cuda" if machine["device"] else "cpu"


def _peak(name: str, size: str, ranks: int, dtype: str, context: int, machine: dict) -> float:
    found = predicted_bytes(name, SHAPES[size], context, 4, ranks, dtype, _kind(machine))
    return 1.01 * found["peak"]["total"]


def overlap(machine: dict, sizes, dtypes, ranks=2, context=512, compiled=True) -> pd.DataFrame:
    """The ledger of every strategy, and the timelines of two of them."""
    rows = []
    for size in sizes:
        for dtype in dtypes:
            for name in names(compiled):
                common = {**cell(size, dtype, ranks, context), "implementation": name}
                common |= {"phase": "train_step", "status": "ok", "reason": None}
                rows.append({**common, **_ledger(name, size, ranks, machine)})
                if name.removesuffix("_compiled") in ("flat", "overlapped"):
                    rows += [{**common, **one} for one in _timeline(name, size, ranks, machine)]
    return pd.DataFrame(rows)


def _ledger(name: str, size: str, ranks: int, machine: dict) -> dict:
    found = times(name, size, ranks, machine)
    exposed = found["communication"] - found["hidden"]
    gathers = GATHER * found["communication"] if "fully" in name or "fsdp2" in name else 0.0
    values = {
        "step": found["compute"] + exposed,
        "compute": found["compute"],
        "communication": found["communication"],
        "hidden": found["hidden"],
        "exposed": exposed,
        "gathers": gathers,
        "gathers_hidden": 0.95 * gathers,
        "waited": 0.1,
    }
    row = {"table": "ledger", "position": 0, "steps": STEPS, "calls": 40}
    for quantity, ms in values.items():
        row |= {f"{quantity}_ms": ms}
        row |= {f"{quantity}_low_ms": 0.98 * ms, f"{quantity}_high_ms": 1.02 * ms}
    share = found["hidden"] / found["communication"]
    row |= {"hidden_share": share, "hidden_share_low": share, "hidden_share_high": share}
    if gathers:
        row |= dict.fromkeys(("gathers_hidden_share",), 0.95)
        row |= {"gathers_hidden_share_low": 0.94, "gathers_hidden_share_high": 0.96}
    row["sent_bytes"] = sent_bytes(name, SHAPES[size], ranks, "float32")["total"]
    return row


def _timeline(name: str, size: str, ranks: int, machine: dict) -> list[dict]:
    """Intervals of computation, and of communication in ten collectives."""
    found = times(name, size, ranks, machine)
    begin = found["compute"] - found["hidden"]
    each = found["communication"] / 10
    spans = [("computation", 0.0, found["compute"])]
    spans += [("communication", begin + n * each, begin + (n + 0.9) * each) for n in range(10)]
    return [
        {"table": "timeline", "position": number, "lane": lane, "starts_ms": start, "ends_ms": end}
        for number, (lane, start, end) in enumerate(spans)
    ]


def memory(machine: dict, sizes, dtypes, ranks=2, context=512) -> pd.DataFrame:
    """Memory of a rank at each moment: 1 % more than the closed form says."""
    rows = []
    for size in sizes:
        for dtype in dtypes:
            for name in STRATEGIES:
                key = name, SHAPES[size], context, 4, ranks, dtype, _kind(machine)
                for moment, parts in predicted_bytes(*key).items():
                    values = {f"{part}_mib": 1.01 * held / MIB for part, held in parts.items()}
                    rows.append(
                        {
                            **cell(size, dtype, ranks, context),
                            **{"implementation": name, "phase": "train_step"},
                            **{"status": "ok", "reason": None, "moment": moment, **values},
                        }
                    )
    assert {row["moment"] for row in rows} == set(MOMENTS)
    return pd.DataFrame(rows)
