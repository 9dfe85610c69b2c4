"""Runs in a worker: measures the groups of a job one after another, and tells their rows."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, BinaryIO

import torch

from lmperf.benchmark import Case, Observed, is_ranked, ranks_of
from lmperf.errors import one_line
from lmperf.measuring import interpreter, ranks, vectors
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.clock import now
from lmperf.measuring.group import Group
from lmperf.measuring.isolation import Worlds, import_compiler
from lmperf.measuring.job import Job, seed_of
from lmperf.measuring.peak_memory import import_dispatch

# Version of the messages. A comparison of two versions of the code needs workers of the same one.
PROTOCOL = 7
# How warnings of PyTorch begin that say nothing to a user. The first one belongs to every profile;
# the second, to a call of cuBLAS in autograd's thread that finds no context there and makes one.
_HIDDEN = (
    "Warning: Profiler clears events at the end of each cycle",
    "Attempting to run cuBLAS, but there was no current CUDA context",
)
# What ranks may hold after a group: buffers of libraries.
_KEPT_BYTES = 2**28
_NARROW = (
    f"code that PyTorch {torch.__version__} compiles for this CPU gives wrong gradients, so it uses"
    f" vectors of {vectors.BITS} bits here (torch._inductor.config.cpp.simdlen)"
)


def main(pipe: int) -> None:
    """Measure the job on standard input; write messages to the pipe."""
    given = os.fdopen(os.dup(0), "rb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    job: Job = pickle.load(given)

    def tell(**message: Any) -> None:
        line = json.dumps({"at": now(), **message}, default=float)
        os.write(pipe, f"{line}\n".encode())

    for words in _HIDDEN:
        warnings.filterwarnings("ignore", words)
    benchmark = job.benchmark
    # Before a limit of time runs, and once for all ranks.
    if any(case.implementation in benchmark.external for group in job.groups for case in group):
        import_compiler()
        interpreter.watch()
    if job.device != "cuda" and (is_ranked(benchmark) or not isinstance(benchmark, Observed)):
        import_dispatch()
    gc.freeze()  # later collections skip what is imported now
    tell(ready=_facts(job.device, is_ranked(benchmark)))
    if _may_compile_for_cpu(job) and vectors.narrow():
        tell(note=_NARROW)
    for size, groups in groupby(job.groups, lambda group: ranks_of(benchmark, group[0])):
        left = list(groups)
        if not is_ranked(benchmark):
            _measure(job, left, given, tell, ranks.Alone())
            continue
        try:
            while left:
                measure = partial(_measure, job, left, given, tell)
                left = left[ranks.run(size, job.device, measure, tell) :]
        except Exception as error:  # of torch.multiprocessing: a rank has ended
            reason = one_line(f"a rank failed: {str(error).strip().splitlines()[-1]}")
            tell(failed={"status": "crash", "reason": reason}, died=True)
            os._exit(1)
    os._exit(0)  # without waiting for threads that an implementation has left


def _may_compile_for_cpu(job: Job) -> bool:
    names = {case.implementation for group in job.groups for case in group}
    return job.device == "cpu" and any(
        job.benchmark.implementation(name).may_compile for name in names
    )


def _facts(device: str, forks: bool) -> dict[str, Any]:
    """Properties of software and device; `forks`: ranks, before which no device may be used."""
    facts: dict[str, Any] = {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
    }
    if device == "cpu":
        facts["threads"] = torch.get_num_threads()
    if device == "cuda" and torch.distributed.is_nccl_available():
        # Of the library that is loaded: a variable NCCL_VERSION names that of a container's image.
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if device == "cuda" and not forks:
        facts["multiprocessors"] = torch.cuda.get_device_properties(0).multi_processor_count
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts


def _measure(
    job: Job,
    groups: Sequence[list[Case]],
    given: BinaryIO,
    tell: Callable,
    team: ranks.Alone,
) -> int:
    """Measure groups; return how many. Ranks end after one that has left memory in use."""
    told = tell if team.is_first else lambda **_: None
    # A comparison of versions ends no worker for what an implementation changes.
    worlds = Worlds(job.apart, ignores=job.on_request)
    for number, cases in enumerate(groups, 1):
        benchmark = copy.copy(job.benchmark)  # without what it kept of another group
        seed = seed_of(benchmark, cases)
        steps = CaseSteps(benchmark, cases, job.device, team, told, worlds)
        group = Group(steps, cases, job.done, job.alone, seed)
        if job.on_request:
            _serve(group, cases, given, team, told)
        else:
            # Ranks may begin with a later group.
            group.check() if job.checks_first and cases is job.groups[0] else group.run()
            told(done=True)
            if team.rank and _keeps_memory(team):
                return number
    return len(groups)


def _serve(
    group: Group, cases: Sequence[Case], given: BinaryIO, team: ranks.Alone, tell: Callable
) -> None:
    """Prepare the only case of a group, then time its calls until the next case is asked for."""
    (case,) = cases
    group.prepare(case)
    tell(columns=group.ready(case))
    while True:
        request = json.loads(team.shared(given.readline() if team.is_first else b"") or b"{}")
        if "calls" not in request:
            return
        tell(times=group.slice(request["phase"], case, request["calls"]))


def _keeps_memory(team: ranks.Alone) -> bool:
    """Whether a rank still holds tensors on CUDA: DistributedDataParallel keeps its model."""
    gc.collect()
    held = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    return team.longest([float(held)])[0] > _KEPT_BYTES
