"""Small ranked benchmarks: a sum over the ranks; some implementations fail on rank 1."""

from __future__ import annotations

import os
import signal
import time

import torch

from lmperf.benchmark import (
    Axis,
    Case,
    Column,
    Implementation,
    Phase,
    RankedObserved,
    RankedTimed,
    Unsupported,
    Workload,
    WrongResult,
)
from lmperf.gate import Gate


def _exits():
    os._exit(3)


def _is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def _hangs():
    time.sleep(600)


def _raises():
    raise RuntimeError("no route to the other rank")


def _exhausts_memory():
    torch.empty(2**50, dtype=torch.uint8, device="cuda" if torch.cuda.is_available() else "cpu")


def _refuses():
    raise Unsupported("no such layout on this rank")


def _finds_it_wrong():
    raise WrongResult("changed its inputs")


# Implementation -> what rank 1 does in its first call.
FAULTS = {
    "exits": _exits,
    "is_killed": _is_killed,
    "hangs": _hangs,
    "raises": _raises,
    "exhausts_memory": _exhausts_memory,
    "refuses": _refuses,
    "finds_it_wrong": _finds_it_wrong,
}
WRONG = ("averages_over_one_too_many", "leaves_out_the_last_bucket")
AXES = (Axis("size", int), Axis("ranks", int), Axis("dtype", str, ("float32",)))


class RankedToy(RankedTimed):
    title = "Ranked toy"
    axes = AXES
    grids = {
        "cpu": [
            {"size": [64], "ranks": [2], "dtype": ["float32"], "implementation": ["right", "alone"]}
        ]
    }
    implementations = (
        *map(Implementation, ("right", "other", "alone", "allocates", "unsupported")),
        Implementation("on_each_rank_another"),
        *map(Implementation, (*WRONG, *FAULTS)),
    )
    clock = "step"
    least_devices = 2
    limit_s = 20.0

    def sustains(self, case, phase):
        return case.implementation == "other"

    def prepare_rank(self, case, rank, seed, shared):
        name = case.implementation
        if name == "unsupported":
            raise Unsupported("needs four nodes")
        inputs = torch.zeros(2, case.axes["size"], device=rank.device)
        expected = torch.zeros_like(inputs)

        def freshen(seed):
            scale = 1 + seed % 1000
            inputs.fill_(scale * (rank.number + 1))
            if name == "on_each_rank_another":
                inputs.fill_(scale + rank.number)
            expected.fill_(scale * sum(range(1, rank.ranks + 1)) / rank.ranks)

        def run(_):
            if name in FAULTS and rank.number == 1:
                FAULTS[name]()
            if name == "allocates":
                torch.empty(2**26, dtype=torch.uint8)
            return _mean(inputs, rank.ranks, name)

        def check(phase, result):
            return Gate({"out": (result - expected).abs().max().item()}, {"out": 0.5})

        def gate(phases):
            freshen(seed)
            return check(phases[0], run(None))

        return Workload(
            {"forward": Phase(run, bytes=inputs.nbytes)},
            gate=gate,
            freshen=freshen,
            check=check,
            resident=[inputs, expected],
        )


def _mean(inputs, ranks, name):
    out = inputs.clone()
    reduced = out[:1] if name == "leaves_out_the_last_bucket" else out
    torch.distributed.all_reduce(reduced)
    return out / (ranks + (name == "averages_over_one_too_many"))


class RankedObservedToy(RankedObserved):
    title = "Observed ranked toy"
    axes = AXES
    grids = RankedToy.grids
    implementations = tuple(map(Implementation, ("right", "alone", "raises")))
    columns = (Column("total", int),)
    least_devices = 2
    limit_s = 20.0

    def observe_rank(self, case, phase, rank, seed):
        if case.implementation == "raises" and rank.number == 1:
            FAULTS["raises"]()
        total = torch.tensor([rank.number + 1], device=rank.device)
        torch.distributed.all_reduce(total)
        return [{"total": total.item()}]


def case_of(name: str, ranks: int = 2) -> Case:
    return Case((("size", 64), ("ranks", ranks), ("dtype", "float32")), name)
