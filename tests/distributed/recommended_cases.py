"""The recommended step on several ranks, and one process on the same data: a tiny model."""

from __future__ import annotations

import io
import runpy
import sys
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import strategy_cases
import torch
import torch.distributed as dist
from strategy_cases import AUTOCAST, problem_of

from lmperf.benchmark import Rank
from lmperf.distributed.ranked_adamw import RankedAdamW, _Bucket
from lmperf.distributed.ranked_trainer import RankedTrainer
from lmperf.distributed.strategies import recommended
from lmperf.transformer.model import TransformerLM
from lmperf.transformer.sizes import SHORT
from lmperf.transformer.steps import GRAPH, copying_adamw
from lmperf.transformer.training import gradients

NAMES = ("overlapped_graph", "sharded_optimizer_graph")
STEPS, RATE, EPS = 4, 2e-3, 1e-3
EXAMPLE = str(Path(__file__).parents[2] / "examples/train.py")
EXAMPLE_VOCAB, EXAMPLE_CONTEXT, EXAMPLE_NORM = 1000, 16, 0.1
# Name -> (last step, options, number of ranks) of runs, each of which goes on from the one before.
EXAMPLE_RUNS = {
    "data_parallel": [(4, "", 2)],
    "zero1": [(4, "--zero1", 2)],
    "resumed": [(2, "--zero1", 2), (4, "--zero1", 2)],
    "a step of micro-batches": [(1, "--zero1 --micro-batch 1", 2)],
    "a step of micro-batches alone": [(1, "--micro-batch 1", 1)],
    "micro-batches": [(4, "--zero1 --micro-batch 1", 2)],
    "micro-batches on other ranks": [
        (1, "--zero1 --micro-batch 1", 2),
        (2, "--micro-batch 1", 1),
        (3, "--micro-batch 1", 2),
        (4, "--zero1 --micro-batch 1", 2),
    ],
}
# Several buckets of each kind.
BUCKET_MB = 0.1


def run(rank: Rank) -> dict[str, Any]:
    """Everything of this module on a rank. Compilers are switched off for good."""
    torch.compiler.set_stance("force_eager")
    return {
        "gates": strategy_cases.gates(rank, AUTOCAST, NAMES),
        "steps": {
            is_sharded: steps(rank, sharded=is_sharded, bucket_mb=BUCKET_MB)
            for is_sharded in (False, True)
        },
        "alone": steps_alone(rank),
        "one_step": {"ranks": steps(rank, count=1), "alone": one_step(rank)},
        "planted": planted(rank),
        "example": example(rank),
        "too_much": too_much(rank),
    }


def steps(rank: Rank, count: int = STEPS, **options) -> dict[str, Any]:
    """Weights after some steps, losses, and the elements of this rank's moments."""
    problem = problem_of(rank, AUTOCAST)
    training = recommended(problem.setup(RATE, EPS), **options)
    losses = []
    for step in range(count):
        problem.freshen(step)
        losses.append(problem.step(training))
    moments = [state["exp_avg"].numel() for state in training.optimizer.state.values()]
    return {"weights": dict(training.weights()), "losses": losses, "moments": sum(moments)}


def _alone(rank: Rank):
    """A problem, and its model in one process with the optimizer of the recommended step."""
    problem = problem_of(rank, AUTOCAST)
    setup = problem.setup()
    groups = [{"params": list(setup.model.parameters()), "eps": EPS}]
    optimizer = copying_adamw(setup.model, RATE, groups)
    return problem, setup.model, optimizer


def steps_alone(rank: Rank) -> dict[str, torch.Tensor]:
    """Weights of one process that averages the gradients of the ranks' parts in float32."""
    problem, model, optimizer = _alone(rank)
    run = GRAPH.way(model)
    for step in range(STEPS):
        problem.freshen(step)
        sums = dict.fromkeys(model.parameters(), 0.0)
        for part in range(rank.ranks):
            gradients(run, optimizer, *problem.part(part, rank.ranks), AUTOCAST)
            sums = {weight: sum + weight.grad.float() for weight, sum in sums.items()}
        for weight, total in sums.items():
            weight.grad = (total / rank.ranks).to(weight.grad_dtype)
        optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


def one_step(rank: Rank) -> dict[str, dict[str, torch.Tensor]]:
    """What one process has after a step on the whole batch, by name of a weight.

    `weight`; `gradient`, its magnitude; `parts`, the mean magnitude of those of the parts.
    """
    problem, model, optimizer = _alone(rank)
    run = GRAPH.way(model)
    problem.freshen(0)
    parts = dict.fromkeys(dict(model.named_parameters()), 0.0)
    for part in range(rank.ranks):
        gradients(run, optimizer, *problem.part(part, rank.ranks), AUTOCAST)
        for name, weight in model.named_parameters():
            parts[name] = parts[name] + weight.grad.float().abs() / rank.ranks
    gradients(run, optimizer, *problem.part(0, 1), AUTOCAST)
    whole = {name: weight.grad.float().abs() for name, weight in model.named_parameters()}
    optimizer.step()
    return {
        name: {"weight": weight.detach(), "gradient": whole[name], "parts": parts[name]}
        for name, weight in model.named_parameters()
    }


def planted(rank: Rank) -> dict[str, str]:
    """Fault -> status of the gate."""
    faults = {
        "copies are not gathered": (_Bucket, "gather", lambda self: None),
        "a bucket is not reduced": (RankedAdamW, "_ready", _all_but_the_first_bucket),
    }
    found = {}
    for name, (owner, method, function) in faults.items():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, method, function)
            reference = strategy_cases.Reference(problem_of(rank, AUTOCAST))
            build = partial(recommended, sharded=name.startswith("copies"), bucket_mb=BUCKET_MB)
            found[name] = reference.gate(build, "eager", "strict").columns["status"]
    return found


def _all_but_the_first_bucket(self, number: int, ready=RankedAdamW._ready) -> None:
    if number:
        ready(self, number)
    elif number not in self._complete:
        self._complete.append(number)


def too_much(rank: Rank) -> str:
    """What a trainer says of a step that does not fit; an optimizer of a strategy adds up none."""
    problem = problem_of(rank, AUTOCAST)
    training = recommended(problem.setup())
    sequences = [part.unsqueeze(1) for part in problem.part(0, 1)]
    with pytest.raises(Exception, match="no micro-batches"):
        gradients(training.model, training.optimizer, *sequences, AUTOCAST)
    trainer = RankedTrainer(problem.setup().model)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(torch.OutOfMemoryError) as raised:
        patched.setattr(trainer.optimizer, "step", _does_not_fit)
        trainer.step(*problem.part(rank.number, rank.ranks))
    return str(raised.value)


def _does_not_fit() -> None:
    raise torch.OutOfMemoryError


def example(rank: Rank, names: Iterable[str] = EXAMPLE_RUNS) -> dict[str, dict[str, Any]]:
    """Name of `EXAMPLE_RUNS` -> what the example has saved, and printed on this rank."""
    results, shared = {}, [tempfile.mkdtemp()]
    dist.broadcast_object_list(shared)
    folder = Path(shared[0])
    if rank.number == 0:
        tokens = torch.arange(4000).remainder(EXAMPLE_VOCAB).to(torch.uint16)
        tokens.numpy().tofile(folder / "tokens")
    dist.barrier()
    for name in names:
        with redirect_stdout(io.StringIO()) as printed:
            for stop, options, ranks in EXAMPLE_RUNS[name]:
                if rank.number < ranks:
                    options += f" --steps {stop} --device {rank.device}"
                    _run_example(ranks, folder, name, options)
                dist.barrier()
        saved = torch.load(folder / name, map_location="cpu")
        results[name] = {**saved, "printed": printed.getvalue()}
    return results


def _run_example(ranks: int, folder: Path, name: str, options: str) -> None:
    options += f" --size toy --vocab {EXAMPLE_VOCAB} --context {EXAMPLE_CONTEXT} --batch 4"
    options += f" --every 2 --warm-up 10 --max-norm {EXAMPLE_NORM}"
    words = [str(folder / "tokens"), *options.split(), "--checkpoint", str(folder / name)]
    ended = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SHORT, "toy", strategy_cases.TOY)
        patched.setattr(sys, "argv", [EXAMPLE, *words])
        patched.setenv("WORLD_SIZE", str(ranks))
        patched.setenv("LOCAL_RANK", str(dist.get_rank()))
        patched.setattr(dist, "init_process_group", lambda **_: None)
        patched.setattr(dist, "destroy_process_group", lambda: ended.append(True))
        runpy.run_path(EXAMPLE, run_name="__main__")
    assert len(ended) == (ranks > 1), "its process group is destroyed"


def flat(run: dict[str, Any]) -> dict[Any, torch.Tensor]:
    """Weights, moments and steps that the example has saved."""
    state = run["trainer"]["optimizer"]["state"]
    moments = {(n, name): value for n, values in state.items() for name, value in values.items()}
    return {**run["trainer"]["model"], **moments}


def distance(run: dict[str, Any], other: dict[str, Any], device: str = "cpu") -> float:
    """How far weights and moments of two runs are apart, over how far training has moved them.

    device: of the training, where it drew the weights that it began with.
    """
    torch.manual_seed(0)
    with torch.device(device):
        model = TransformerLM.of_size(strategy_cases.TOY, EXAMPLE_VOCAB, EXAMPLE_CONTEXT)
    before, run, other = model.cpu().state_dict(), flat(run), flat(other)
    apart = {name: (run[name] - value).norm() for name, value in other.items()}
    moved = {name: (value - before.get(name, 0.0)).norm() for name, value in other.items()}
    return max(float(apart[name] / moved[name]) for name in other)
