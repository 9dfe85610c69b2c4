"""Small benchmarks; their implementations have one fault each."""

import os
import sys
import time
import warnings
from datetime import timedelta

import torch
import triton
import triton.language as tl

from lmperf.benchmark import (
    Axis,
    Case,
    Column,
    Implementation,
    Observed,
    Phase,
    RankedTimed,
    Timed,
    Unsupported,
    Workload,
)
from lmperf.gate import Gate
from lmperf.measuring import ranks
from lmperf.own.kinds import ATTENTION

FORKED, PRINTED = [], []
AXES = (Axis("size", int), Axis("dtype", str, ("float32",)))


def grids_of(implementations, **axes):
    """All cells of these axes on a CPU."""
    names = [one.name for one in implementations]
    return {"cpu": [{"dtype": ["float32"], **axes, "implementation": names}]}


def doubles(x):
    return x * 2


def raises(x):
    raise RuntimeError("no kernel für \ud800 \x1b[31m this\nsize")


def leaves(x):
    sys.exit(0)


def interrupts(x):
    raise KeyboardInterrupt


class Strange(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def is_strange(x):
    raise Strange


def forks_and_leaves(x):
    """Forks a process, which leaves by sys.exit, in its first call."""
    if not FORKED:
        FORKED.append(os.fork())
        if not FORKED[0]:
            sys.exit(0)
        os.waitpid(FORKED[0], 0)
    return x * 2


def asks_for_a_pebibyte(x):
    return torch.empty(2**50, dtype=torch.uint8, device=x.device)


def is_wrong(x):
    return x * 3


def is_not_finite(x):
    return x * float("nan")


def hangs(x):
    time.sleep(600)


def writes_where_nothing_is(x):
    """Makes an illegal memory access on a GPU, after which its context cannot be used."""
    return torch.ones(8, device=x.device)[torch.tensor([2**40], device=x.device)]


def works_on_a_stream(x, k=None, v=None, causal=False):
    """Works on a stream for which the current one does not wait."""
    out = x * 2
    with torch.cuda.stream(torch.cuda.Stream()):
        large = torch.ones(4096, 4096, device=x.device)
        for _ in range(20):
            large @ large
    return out


def sets_its_device(x, k=None, v=None, causal=False):
    """Makes the device of its input the current one, which it is already."""
    torch.cuda.set_device(x.device)
    return x * 2


def moves_to_the_last_device(x, k=None, v=None, causal=False):
    torch.cuda.set_device(torch.cuda.device_count() - 1)
    return x * 2


def sees_torch(x, k=None, v=None, causal=False):
    """Is wrong if what others change in torch is in force."""
    as_it_is = torch.nn.functional.softsign.__module__ == "torch.nn.functional"
    return x * 2 if as_it_is else x


@triton.jit
def _doubled(x, out, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(out + at, 2 * tl.load(x + at))


def runs_a_kernel(x, k=None, v=None, causal=False):
    _doubled[(1,)](x, out := torch.empty_like(x), len(x))
    return out


def runs_a_wrong_kernel(x, k=None, v=None, causal=False):
    return 2 * runs_a_kernel(x)


def prints_a_lot(x):
    """Prints more than fits into a pipe, once in a process."""
    if not PRINTED:
        PRINTED.append(os.write(1, bytes(range(256)) * 2**10 + b"\n"))
    return x * 2


def warns(x):
    warnings.warn("Warning: Profiler clears events at the end of each cycle. Only", stacklevel=1)
    warnings.warn("Attempting to run cuBLAS, but there was no current CUDA context!", stacklevel=1)
    print("USDT: a probe of SyncActivityProfilerHandler", flush=True)
    warnings.warn("of the user's own", stacklevel=1)
    return x * 2


FUNCTIONS = (
    *(doubles, raises, asks_for_a_pebibyte, is_wrong, is_not_finite),
    *(writes_where_nothing_is, prints_a_lot, warns),
    *(leaves, interrupts, is_strange, forks_and_leaves, hangs),
)


class Toy(Timed):
    """Kernels: each implementation doubles a tensor, in two phases."""

    title = "Toy"
    axes = AXES
    phases = ("forward", "again")
    implementations = (
        *(Implementation(one.__name__, f"toys:{one.__name__}") for one in FUNCTIONS),
        Implementation("also_doubles", "toys:doubles"),
        Implementation("is_too_large_to_check", "toys:doubles"),
        Implementation("is_unsupported"),
    )
    grids = grids_of(implementations, size=[8, 16, 32])
    columns = (Column("error_out"),)
    takes = ATTENTION
    limit_s = 4.0

    def prepare(self, case, device, seed, shared):
        name = case.implementation
        if name == "is_unsupported":
            raise Unsupported("needs another machine")
        function = self.callable_of(name)
        inputs = torch.zeros(case.axes["size"], device=device)
        expected = []

        def expect():
            if name == "is_too_large_to_check":
                torch.empty(2**50, dtype=torch.uint8, device=device)
            expected.append(True)

        def run(_):
            if not expected:
                raise RuntimeError("called before what its results are compared with was computed")
            return function(inputs)

        def freshen(seed):
            inputs.fill_(1 + seed % 1000)

        def check(phase, result):
            return Gate({"out": float((result - 2 * inputs).abs().max())}, {"out": 0.5})

        def gate(phases):
            freshen(seed)
            return check("forward", function(inputs))

        phase = Phase(run)
        return Workload(
            {"forward": phase, "again": phase},
            gate=gate,
            expect=expect,
            freshen=freshen,
            check=check,
            resident=[inputs],
            least_mib=float(name == "also_doubles"),  # more than these few numbers take
        )


class Short(Toy):
    """One phase alone."""

    phases = ("forward",)
    limit_s = 3.0


class Steps(Timed):
    """Steps of a model that all implementations share, with a learning rate of zero."""

    title = "Steps"
    axes = AXES
    phases = ("train_step",)
    clock = "step"
    implementations = tuple(
        map(Implementation, ("first", "poisons", "poisons_later", "spoils", "last"))
    )
    grids = grids_of(implementations, size=[8])
    limit_s = 10.0

    def prepare(self, case, device, seed, shared):
        name = case.implementation
        if not shared:
            torch.manual_seed(seed)
            model = torch.nn.Linear(case.axes["size"], 1, device=device)
            shared["model"] = model, torch.optim.AdamW(model.parameters(), lr=0.0)
            shared["weight"] = model.weight.detach().clone()
        model, optimizer = shared["model"]
        inputs, calls = torch.ones(4, case.axes["size"], device=device), [0]

        def run(_):
            calls[0] += 1
            optimizer.zero_grad()
            loss = model(inputs).sum()
            loss.backward()
            if name == "poisons" or (name == "poisons_later" and calls[0] == 8):
                model.weight.grad.fill_(float("nan"))
            optimizer.step()
            if name == "spoils":
                with torch.no_grad():
                    model.weight.add_(1)
            time.sleep(0.02)
            if name == "poisons_later" and calls[0] > 8:
                raise RuntimeError("the loss is not finite")
            return loss.detach()

        def gate(phases):
            loss = run(None)
            off = float((loss - (inputs @ shared["weight"].T + model.bias).sum()).abs())
            moments = sum(float(s["exp_avg"].abs().sum()) for s in optimizer.state.values())
            return Gate({"loss": off, "moments": 0 * moments}, {"loss": 1e-3, "moments": 1.0})

        return Workload(
            {"train_step": Phase(run)},
            gate=gate,
            freshen=lambda seed: inputs.fill_(1 + seed % 7),
            resident=[model, optimizer],
        )


class FewSteps(Steps):
    """Steps that are timed in one visit."""

    steps = 10


def _ends():
    os._exit(3)


def _hangs():
    time.sleep(600)


def _raises():
    raise RuntimeError("no route to the other rank")


# Implementation -> what rank 1 does in its first call.
ON_RANK_1 = {"ends": _ends, "hangs": _hangs, "raises": _raises}
RANKED = ("right", "is_wrong_on_rank_1", "is_unsupported", *ON_RANK_1, "right_too")


class Ranked(RankedTimed):
    """Steps of several ranks: a sum over them."""

    title = "Ranked"
    axes = (Axis("size", int), Axis("ranks", int), Axis("dtype", str, ("float32",)))
    clock = "step"
    phases = ("forward",)
    least_devices = 2
    limit_s = 6.0
    implementations = tuple(map(Implementation, RANKED))
    grids = grids_of(implementations, size=[8], ranks=[2])

    def prepare_rank(self, case: Case, rank, seed, shared):
        name = case.implementation
        ranks._ALONE_S = timedelta(seconds=2)  # until a rank that failed is known to be alone
        if name == "is_unsupported":
            raise Unsupported("needs four nodes")
        inputs = torch.zeros(case.axes["size"], device=rank.device)

        def freshen(seed):
            inputs.fill_((1 + seed % 1000) * (rank.number + 1))

        def run(_):
            if name in ON_RANK_1 and rank.number == 1:
                ON_RANK_1[name]()
            out = inputs.clone()
            torch.distributed.all_reduce(out)
            time.sleep(0.01 * (1 + rank.number))  # the slowest rank counts
            return out + (name == "is_wrong_on_rank_1" and rank.number == 1)

        def gate(phases):
            freshen(seed)
            found = run(None)
            total = inputs / (rank.number + 1) * sum(range(1, rank.ranks + 1))
            return Gate({"out": float((found - total).abs().max())}, {"out": 0.5})

        return Workload({"forward": Phase(run)}, gate=gate, freshen=freshen, resident=[inputs])


class Seen(Observed):
    """An observation that is a time, as of a profile."""

    title = "Seen"
    axes = AXES
    columns = (Column("took_ms"),)
    implementations = (Implementation("right"),)
    grids = grids_of(implementations, size=[8])

    def observe(self, case, phase, device, seed):
        return [{"took_ms": 1.0}, {"took_ms": 2.0}]
